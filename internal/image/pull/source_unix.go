//go:build unix

package pull

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/bailey-sandbox/bailey/internal/image"
)

// open finds an image by its reference: a name in a registry, with a tag or a digest, or
// the path of an OCI layout or of an archive.
func open(ctx context.Context, ref string) (v1.Image, error) {
	if !image.IsPath(ref) {
		return openRemote(ctx, ref)
	}
	info, err := os.Stat(ref)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return openLayout(ref)
	}
	i, err := tarball.ImageFromPath(ref, nil)
	if err != nil {
		return nil, fmt.Errorf("%s is no archive of one image, as docker save writes it: %w", ref, err)
	}
	return i, nil
}

// platform is this machine's, of images that are for several.
func platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// openRemote asks a registry, as whom the user's own tools would. What has a digest is
// only taken if it has that.
func openRemote(ctx context.Context, ref string) (v1.Image, error) {
	r, err := name.ParseReference(ref)
	if err != nil {
		return nil, fmt.Errorf("%s is no reference to an image: %w; a path begins with / or ./", ref, err)
	}
	return remote.Image(r, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithPlatform(platform()))
}

// openLayout takes the image of a layout that is for this machine. There must be one.
func openLayout(dir string) (v1.Image, error) {
	if _, err := os.Stat(filepath.Join(dir, "oci-layout")); err != nil {
		return nil, fmt.Errorf("%s is no OCI layout: %w; for a root directory use --rootfs", dir, err)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	found, err := imagesOf(index, 0)
	if err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%s holds %d images for %s; make a layout with one", dir, len(found), platform().String())
	}
	return found[0], nil
}

// imageOf opens an image whose manifest is the one that an index names.
func imageOf(index v1.ImageIndex, digest v1.Hash) (v1.Image, error) {
	i, err := index.Image(digest)
	if err != nil {
		return nil, err
	}
	text, err := i.RawManifest()
	if err != nil {
		return nil, err
	}
	if sum, _, err := v1.SHA256(bytes.NewReader(text)); err != nil || sum != digest {
		return nil, errors.Join(errors.New("the image's manifest is not the one that its index names"), err)
	}
	return i, nil
}

// maxDepth is how deep an index holds indexes.
const maxDepth = 4

func imagesOf(index v1.ImageIndex, depth int) (found []v1.Image, err error) {
	if depth > maxDepth {
		return nil, errors.New("indexes hold each other")
	}
	m, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range m.Manifests {
		var more []v1.Image
		switch {
		case d.Platform != nil && !d.Platform.Satisfies(platform()):
		case d.MediaType.IsIndex():
			var inner v1.ImageIndex
			if inner, err = index.ImageIndex(d.Digest); err == nil {
				more, err = imagesOf(inner, depth+1)
			}
		case d.MediaType.IsImage():
			var i v1.Image
			i, err = imageOf(index, d.Digest)
			more = []v1.Image{i}
		}
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}
