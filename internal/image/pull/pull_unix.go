//go:build unix

package pull

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/bailey-sandbox/bailey/internal/image"
)

// Pull gets an image into a store, unless it is there, and has the reference stand for it.
// Report is told what is going on.
func Pull(ctx context.Context, s image.Store, ref string, report func(string)) (id string, err error) {
	i, err := open(ctx, ref)
	if err != nil {
		return "", err
	}
	p, err := describe(i)
	if err != nil {
		return "", fmt.Errorf("%s: %w", ref, err)
	}
	u, err := s.Begin()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, u.Close()) }()
	if !u.Has(p.record.ID) {
		report("unpacking " + ref + ", " + p.record.ID)
		if err := u.Add(&p.record, func(root string) error { return p.unpack(root, ordinary) }); err != nil {
			return "", fmt.Errorf("%s: %w", ref, err)
		}
	}
	return p.record.ID, u.Name(ref, p.record.ID)
}

// pulled is an image on its way into a store.
type pulled struct {
	record image.Image
	layers []v1.Layer
	diffs  []v1.Hash // what each layer holds, as the configuration says
}

// describe reads what an image says of itself. Its configuration must be what its digest
// says: everything else is checked against the configuration.
func describe(i v1.Image) (*pulled, error) {
	text, err := i.RawConfigFile()
	if err != nil {
		return nil, err
	}
	sum, _, err := v1.SHA256(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	m, err := i.Manifest()
	if err != nil {
		return nil, err
	}
	if m.Config.Digest != sum {
		return nil, errors.New("the image's configuration is not the one that its manifest names")
	}
	c, err := v1.ParseConfigFile(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	layers, err := i.Layers()
	if err != nil {
		return nil, err
	}
	if len(layers) != len(c.RootFS.DiffIDs) {
		return nil, fmt.Errorf("the image has %d layers, and its configuration names %d", len(layers), len(c.RootFS.DiffIDs))
	}
	return &pulled{
		record: image.Image{ID: sum.String(), Pulled: time.Now().UTC(), Config: image.Config{
			Env: c.Config.Env, Entrypoint: c.Config.Entrypoint, Cmd: c.Config.Cmd, WorkingDir: c.Config.WorkingDir, User: c.Config.User,
		}},
		layers: layers, diffs: c.RootFS.DiffIDs,
	}, nil
}

// unpack applies all layers to a directory. A layer that is not what the configuration
// says is an error, and then nothing of it may be used.
func (p *pulled) unpack(dir string, most limits) error {
	u, err := newUnpacker(dir, most)
	if err != nil {
		return err
	}
	for n, l := range p.layers {
		if err := u.verified(l, p.diffs[n]); err != nil {
			return fmt.Errorf("layer %d: %w", n+1, err)
		}
	}
	p.record.Bytes = most.bytes - u.left.bytes
	return u.finish()
}

// verified applies a layer whose content has this digest.
func (u *unpacker) verified(l v1.Layer, want v1.Hash) error {
	content, err := l.Uncompressed()
	if err != nil {
		return err
	}
	defer content.Close()
	sum := newSum()
	// What follows the archive's end counts too, as far as an image may go.
	bounded := io.LimitReader(io.TeeReader(content, sum), u.left.bytes+archiveOverhead)
	if err := u.layer(bounded); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, bounded); err != nil {
		return err
	}
	if got := sum.hash(); got != want {
		return fmt.Errorf("its content is %s, and should be %s", got, want)
	}
	return nil
}

// archiveOverhead is for headers and padding.
const archiveOverhead = 8 << 30
