package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// ignored are the files that git would ignore, directories with a slash.
type ignored map[string]bool

// newIgnored asks git. It is asked with a repository of our own, whose settings
// name no program, and takes from the project's only the list of tracked files,
// which are not ignored whatever rules say, and the rules that are not in the tree.
func (s *Store) newIgnored(dir string) (ignored, error) {
	w, err := findWorkTree(dir)
	if err != nil {
		return nil, err
	}
	scratch, err := s.Scratch("git")
	if err != nil {
		return nil, err
	}
	defer func() { _ = scratch.Discard() }() // or the next Sweep
	create, list, env, err := w.ask(scratch.Path())
	if err != nil {
		return nil, err
	}
	if _, err := git(nil, scratch.Path(), create...); err != nil {
		return nil, err
	}
	out, err := git(env, w.top, list...)
	if err != nil {
		return nil, err
	}
	return w.parse(string(out))
}

// workTree is where a directory is that git is asked about.
type workTree struct {
	top  string // of the work tree; the directory itself if that is in none
	path string // of the directory in there, "." if it is the top

	// Of the repository, empty if there is none. They differ in a linked work tree.
	own    string // where its index is
	common string // where its settings and its rules are
}

func findWorkTree(dir string) (workTree, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return workTree{}, err
	}
	for top := dir; ; top = filepath.Dir(top) {
		own, err := gitDir(top)
		if err != nil {
			return workTree{}, fmt.Errorf("%w; import it without --gitignore", err)
		}
		if own != "" {
			return newWorkTree(top, dir, own)
		}
		if top == "/" {
			return workTree{top: dir, path: "."}, nil
		}
	}
}

func newWorkTree(top, dir, own string) (workTree, error) {
	w := workTree{top: top, own: own, common: own}
	var err error
	if w.path, err = filepath.Rel(top, dir); err != nil {
		return w, err
	}
	common, err := readLine(own + "/commondir")
	if err == nil {
		w.common = absolute(common, own)
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return w, err
}

// gitDir is where the repository of a work tree is, or "" if this is none. A linked
// work tree and a submodule have a file that says so.
func gitDir(top string) (string, error) {
	name := top + "/.git"
	st, err := os.Stat(name)
	if err != nil {
		return "", nil //nolint:nilerr // whatever it is, git finds no repository there
	}
	if st.IsDir() {
		if _, err := os.Lstat(name + "/HEAD"); err != nil {
			return "", nil //nolint:nilerr // git looks further up, too
		}
		return name, nil
	}
	line, err := readLine(name)
	if err != nil {
		return "", err
	}
	dir, ok := strings.CutPrefix(line, "gitdir: ")
	if !ok {
		return "", fmt.Errorf("%s: it does not say where the repository is", name)
	}
	dir = absolute(dir, top)
	if _, err := os.Stat(dir + "/HEAD"); err != nil {
		return "", fmt.Errorf("%s: there is no repository where it says: %w", name, err)
	}
	return dir, nil
}

// readLine reads a file of one line.
func readLine(name string) (string, error) {
	const most = 1 << 16
	if st, err := os.Stat(name); err != nil {
		return "", err
	} else if !st.Mode().IsRegular() || st.Size() > most {
		return "", fmt.Errorf("%s: it is no file of git's", name)
	}
	text, err := os.ReadFile(name)
	return strings.TrimRight(string(text), "\r\n"), err
}

func absolute(path, from string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(from, path)
}

// ask returns what git is told: to make a repository, and to list what is ignored.
func (w *workTree) ask(scratch string) (create, list, env []string, err error) {
	create = []string{"init", "--quiet", "--bare", "--template="}
	list = []string{"-c", "core.bare=false"}
	env = []string{"GIT_DIR=" + scratch, "GIT_WORK_TREE=" + w.top, "GIT_LITERAL_PATHSPECS=1"}
	rules := []string{"--exclude-standard"}
	if w.own != "" {
		format, err := w.setting(scratch, "extensions.objectFormat")
		if err != nil {
			return nil, nil, nil, err
		}
		if format != "" {
			create = append(create, "--object-format="+format)
		}
		excludes, err := w.setting(scratch, "core.excludesFile")
		if err != nil {
			return nil, nil, nil, err
		}
		if excludes != "" {
			list = append(list, "-c", "core.excludesFile="+excludes)
		}
		if name := w.own + "/index"; isRegular(name) {
			env = append(env, "GIT_INDEX_FILE="+name)
		}
		if name := w.common + "/info/exclude"; isRegular(name) {
			rules = append(rules, "--exclude-from="+name)
		}
	}
	list = append(list, "ls-files", "-z", "--others", "--ignored", "--directory")
	list = append(list, rules...)
	return append(create, scratch), append(list, "--", w.path), env, nil
}

// setting is what the project's own settings say, without files that they include. The
// scratch directory, which is empty, keeps git from looking for a repository.
func (w *workTree) setting(scratch, name string) (string, error) {
	file := w.common + "/config"
	if !isRegular(file) {
		return "", nil
	}
	out, err := git([]string{"GIT_DIR=" + scratch}, scratch, "config", "--file", file, "--type=path", "--get", name)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 { // it says nothing
		return "", nil
	}
	return strings.TrimSuffix(string(out), "\n"), err
}

func isRegular(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.Mode().IsRegular()
}

// parse reads what git lists, which it names from the top.
func (w *workTree) parse(out string) (ignored, error) {
	below := ""
	if w.path != "." {
		below = w.path + "/"
	}
	list := make(ignored)
	for name := range strings.SplitSeq(out, "\x00") {
		if name == "" {
			continue
		}
		if strings.HasPrefix(below, name) {
			return nil, fmt.Errorf("%s/%s: git ignores all of it; import it without --gitignore", w.top, w.path)
		}
		list[strings.TrimPrefix(name, below)] = true
	}
	return list, nil
}

// git runs git without what the caller's environment may say about repositories.
func git(env []string, dir string, args ...string) ([]byte, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("to leave out what git ignores takes git: %w", err)
	}
	c := exec.Command(program, args...)
	c.Dir = dir
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GIT_") {
			c.Env = append(c.Env, e)
		}
	}
	c.Env = append(c.Env, env...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := runBound(c); err != nil {
		return nil, errors.Join(fmt.Errorf("git: %w", err), errors.New(strings.TrimSpace(stderr.String())))
	}
	return stdout.Bytes(), nil
}

func (i ignored) skip(n *tree.Node) bool {
	if n.IsDir() {
		return i[n.Path+"/"]
	}
	return i[n.Path]
}
