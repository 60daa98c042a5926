package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// imageName is the repository of images that are root directories.
const imageName = "bailey-root"

// ensureImage returns the name of an image that holds nothing but the symbolic links and
// the empty directories of a root directory, which are few. Everything else is a mount.
// There is one for each set of them, which is why it is kept.
func ensureImage(ctx context.Context, api *client.Client, entries []spec.Mount) (string, error) {
	archive := archiveOf(entries)
	sum := sha256.Sum256(archive)
	name := imageName + ":" + hex.EncodeToString(sum[:8])
	_, err := api.ImageInspect(ctx, name)
	if err == nil || !errdefs.IsNotFound(err) {
		return name, err
	}
	got, err := api.ImageImport(ctx, client.ImageImportSource{Source: bytes.NewReader(archive), SourceName: "-"}, name,
		client.ImageImportOptions{Message: "a root directory for Bailey's sandboxes", Changes: []string{"LABEL " + imageLabel + "=1"}})
	if err != nil {
		return "", err
	}
	defer got.Close()
	_, err = io.Copy(io.Discard, got) // it is there when the engine has said so
	return name, err
}

// archiveOf is the same for the same entries.
func archiveOf(entries []spec.Mount) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := []string{}
	add := func(h *tar.Header) { _ = w.WriteHeader(h) } // to memory, which does not fail
	for _, e := range entries {
		var dirs []string
		from := e.Target
		if e.Kind == spec.Symlink {
			from = path.Dir(from)
		}
		for dir := from; dir != "/"; dir = path.Dir(dir) {
			dirs = append(dirs, dir)
		}
		for _, dir := range slices.Backward(dirs) {
			if !slices.Contains(made, dir) {
				made = append(made, dir)
				add(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: 0o755})
			}
		}
		if e.Kind == spec.Symlink {
			add(&tar.Header{Typeflag: tar.TypeSymlink, Name: strings.TrimPrefix(e.Target, "/"), Linkname: e.Source, Mode: 0o777})
		}
	}
	_ = w.Close()
	return b.Bytes()
}
