package workspace

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/workspace/archive"
)

// ImportGit makes a codebase of a commit of a git repository: a directory, or an
// https or http address. Git runs in sandboxes, of which only the first sees the
// repository or its server: what others have put into a repository has made git
// run programs before. The history is part of the codebase only if the options say so.
func (s *Store) ImportGit(bailey, repository, revision string, o ImportOptions) (Codebase, error) {
	g, err := newGitSource(bailey, repository)
	if err != nil {
		return Codebase{}, err
	}
	scratch, err := s.Scratch("git")
	if err != nil {
		return Codebase{}, err
	}
	defer func() { _ = scratch.Discard() }() // or the next Sweep
	if err := g.furnish(scratch.Path() + "/git"); err != nil {
		return Codebase{}, err
	}
	if err := g.clone(); err != nil {
		return Codebase{}, err
	}
	if revision == "" {
		revision = "HEAD"
	}
	commit, err := g.commit(revision)
	if err != nil {
		return Codebase{}, err
	}
	if o.Source == "" {
		o.Source = g.repository + " " + commit
	}
	pack := g.archive
	if o.History {
		if err := g.checkOut(revision, commit); err != nil {
			return Codebase{}, err
		}
		pack = g.archiveWithHistory
	}
	o.Form = archive.Plain
	r, w := io.Pipe()
	defer r.Close()
	go func() { w.CloseWithError(pack(commit, w)) }()
	return s.ImportArchive(r, o)
}

// IsAddress says whether something is the address of a repository and no path, as git
// tells them apart.
func IsAddress(source string) bool {
	if strings.Contains(source, "://") {
		return true
	}
	host, _, found := strings.Cut(source, ":")
	if !found || strings.Contains(host, "/") {
		return false
	}
	_, err := os.Lstat(source)
	return err != nil
}

type gitSource struct {
	bailey     string
	repository string
	grant      map[string]any // what the sandbox that reads the repository may do
	dir        string
}

func newGitSource(bailey, repository string) (*gitSource, error) {
	g := &gitSource{bailey: bailey, repository: repository}
	u, err := url.Parse(repository)
	switch {
	case err == nil && (u.Scheme == "https" || u.Scheme == "http"):
		if u.User != nil {
			return nil, errors.New("an address with credentials would be kept for everybody to read; have the network gate add them")
		}
		g.grant = map[string]any{"network": grantHost(u)}
	case IsAddress(repository):
		return nil, fmt.Errorf("%s: a repository is a directory, or an https address; clone it, and import the directory with --git", repository)
	default:
		if g.repository, err = filepath.Abs(repository); err != nil {
			return nil, err
		}
		if g.repository, err = filepath.EvalSymlinks(g.repository); err != nil {
			return nil, err
		}
		g.grant = map[string]any{"filesystem": map[string]any{"allowRead": []string{g.repository}}}
	}
	return g, nil
}

// furnish makes the directory that git works in. It lies in one of the store's that
// git does not see: nothing that git makes has a name there.
func (g *gitSource) furnish(dir string) error {
	g.dir = dir
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	// The repository may be somebody else's: that is what the sandbox is for.
	return os.WriteFile(dir+"/gitconfig", []byte("[safe]\n\tdirectory = *\n[tar]\n\tumask = 0022\n"), 0o600)
}

// grantHost lets a sandbox reach one host. An address instead of a name says itself
// in which network it is, or that it is on this machine.
func grantHost(u *url.URL) map[string]any {
	grant := map[string]any{"allowedDomains": []string{u.Hostname()}}
	ip, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return grant
	}
	if !ip.IsLoopback() {
		grant["allowedCIDRs"] = []string{netip.PrefixFrom(ip, ip.BitLen()).String()}
	} else if port, err := strconv.Atoi(u.Port()); err == nil {
		grant["allowLocalOutboundPorts"] = []int{port}
	}
	return grant
}

func (g *gitSource) clone() error {
	err := g.run(g.grant, io.Discard, "clone", "--quiet", "--bare", "--template=", "--", g.repository, "repository")
	if err != nil {
		return err
	}
	return g.archiveAll()
}

// attributes is the file of a repository in which archiveAll says so.
const attributes = "info/attributes"

// archiveAll has files that the repository wants left out of archives, or changed in
// them, be part of those as they are. Git has written the directory, and a git that
// was taken over by what it cloned may have left links in it.
func (g *gitSource) archiveAll() error {
	root, err := os.OpenRoot(g.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll("repository/info", 0o700); err != nil {
		return err
	}
	return root.WriteFile("repository/"+attributes, []byte("* -export-ignore -export-subst\n"), 0o600)
}

func (g *gitSource) commit(revision string) (string, error) {
	if strings.HasPrefix(revision, "-") {
		return "", fmt.Errorf("%q is no revision", revision)
	}
	var out bytes.Buffer
	if err := g.run(nil, &out, "--git-dir=repository", "rev-parse", "--verify", "--quiet", revision+"^{commit}"); err != nil {
		return "", fmt.Errorf("%s: there is no commit %q: %w", g.repository, revision, err)
	}
	return strings.TrimSpace(out.String()), nil
}

func (g *gitSource) archive(commit string, w io.Writer) error {
	return g.run(nil, w, "--git-dir=repository", "archive", "--format=tar", commit)
}

// checkOut makes the bare repository the .git of a tree in which the commit is checked
// out: on its branch, if the revision is one.
func (g *gitSource) checkOut(revision, commit string) error {
	var name bytes.Buffer
	if err := g.run(nil, &name, "--git-dir=repository", "rev-parse", "--symbolic-full-name", revision); err != nil {
		return err
	}
	head := []string{"update-ref", "--no-deref", "HEAD", commit}
	if branch := strings.TrimSpace(name.String()); strings.HasPrefix(branch, "refs/heads/") {
		head = []string{"symbolic-ref", "HEAD", branch}
	}
	for _, args := range [][]string{head, {"read-tree", commit}, {"config", "core.bare", "false"}} {
		if err := g.run(nil, io.Discard, append([]string{"--git-dir=repository"}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// archiveWithHistory is archive with the repository as .git. Of that only files and
// directories are taken, and nothing through a link.
func (g *gitSource) archiveWithHistory(commit string, w io.Writer) error {
	r, pipe := io.Pipe()
	defer r.Close()
	go func() { pipe.CloseWithError(g.archive(commit, pipe)) }()
	to := tar.NewWriter(w)
	for from := tar.NewReader(r); ; {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeXGlobalHeader { // the commit's id, for people
			continue
		}
		if err := to.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(to, from); err != nil {
			return err
		}
	}
	if err := g.packHistory(to); err != nil {
		return err
	}
	return to.Close()
}

func (g *gitSource) packHistory(to *tar.Writer) error {
	dir, err := os.OpenRoot(g.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	root, err := dir.OpenRoot("repository")
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == attributes || !entry.IsDir() && !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		h := &tar.Header{Typeflag: tar.TypeDir, Name: ".git/" + path, Mode: 0o755, ModTime: info.ModTime()}
		if !entry.IsDir() {
			h.Typeflag, h.Mode, h.Size = tar.TypeReg, int64(info.Mode().Perm()), info.Size()
		}
		if err := to.WriteHeader(h); err != nil || entry.IsDir() {
			return err
		}
		f, err := root.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.CopyN(to, f, h.Size)
		return err
	})
}

// run runs git in a sandbox that can write to nothing but a directory made for it.
func (g *gitSource) run(grant map[string]any, stdout io.Writer, args ...string) error {
	policy := map[string]any{
		"extends": "default",
		"env": map[string]any{"set": map[string]string{
			"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": g.dir + "/gitconfig", "GIT_TERMINAL_PROMPT": "0",
		}},
	}
	for key, value := range grant {
		policy[key] = value
	}
	text, err := json.Marshal(policy)
	if err != nil {
		return err
	}
	c := exec.Command(g.bailey, append([]string{"--quiet", "--dir", g.dir, "--policy", string(text), "--", "git"}, args...)...)
	c.Dir = g.dir
	c.Stdout = stdout
	var stderr bytes.Buffer
	c.Stderr = &stderr
	if err := runBound(c); err != nil {
		return fmt.Errorf("git: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// runBound runs a program that dies with this process, however that ends. The
// kernel ties it to the thread that started it, which therefore stays.
func runBound(c *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c.Run()
}
