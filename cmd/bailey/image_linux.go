package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// pulledVariable names the image that was just pulled for this command.
const pulledVariable = "BAILEY_PULLED"

// openImage finds the root directory that the flags ask for. If it is not here yet, this
// process becomes the one that gets it, and then this command once more.
func (r *request) openImage() error {
	q := &r.image
	switch {
	case q.ref == "" && q.rootfs == "" && insideSandbox():
		return q.placeCommand(false)
	case q.ref == "" && q.rootfs == "":
		return nil // the policy may name one
	case q.ref != "" && q.rootfs != "":
		return errors.New("--image and --rootfs exclude each other")
	case insideSandbox():
		return errors.New("--image and --rootfs need mounts, which a sandbox inside a sandbox does not have; run it outside")
	case q.rootfs != "":
		if err := q.openDirectory(); err != nil {
			return err
		}
		return q.placeCommand(false)
	}
	f, err := host.New()
	if err != nil {
		return err
	}
	found, err := image.Store{Dir: image.Dir(sandbox.DataDir(f.Caller.Home))}.Find(q.ref)
	if errors.Is(err, image.ErrNotHere) {
		return r.pullFirst(err)
	}
	if err != nil {
		return fmt.Errorf("--image %s: %w", printable(q.ref), err)
	}
	q.config = found.Config
	q.found = &spec.Image{Name: q.ref, ID: found.ID, Dir: found.Dir, Env: found.Config.Env}
	return q.placeCommand(len(r.args) == 0 && !r.hasLine)
}

// wantsImage says whether the policy names an image and no flag another, which then is what
// the flags ask for.
func (r *request) wantsImage(m *sandbox.Manager) (bool, error) {
	if r.image.found != nil {
		return false, nil
	}
	r.image.ref = m.WantsImage()
	if r.image.ref == "" {
		return false, r.image.placeCommand(false)
	}
	return true, nil
}

func (q *imageRequest) openDirectory() error {
	dir, err := filepath.Abs(q.rootfs)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return fmt.Errorf("--rootfs: %w", err)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() || dir == "/" {
		return errors.New("--rootfs " + printable(q.rootfs) + ": is not the root directory of another system")
	}
	q.found = &spec.Image{Name: q.rootfs, Dir: dir}
	return nil
}

// pullFirst becomes the program that pulls the image and then executes this command
// again, which returns only if that fails.
func (r *request) pullFirst(why error) error {
	if os.Getenv(pulledVariable) == r.image.ref {
		return fmt.Errorf("--image %s: %w, although it was pulled", printable(r.image.ref), why)
	}
	program := host.Beside("baileyd")
	if program == "" {
		return errors.New("--image: the program baileyd is missing beside this one; install all programs of Bailey's into one directory: make install")
	}
	discard()
	argv := append([]string{"baileyd", "image", "run", r.image.ref}, os.Args[1:]...)
	return fmt.Errorf("%s: %w", program, syscall.Exec(program, argv, append(os.Environ(), pulledVariable+"="+r.image.ref)))
}
