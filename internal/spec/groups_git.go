package spec

import (
	"path"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/grants"
)

// gitRemotes finds the hosts of the project's remotes and of its submodules. It
// goes by the repository's own configuration, which git writes, and not by
// .gitmodules, which comes with the code.
func (f *finding) gitRemotes() {
	if f.project == "" {
		f.problem("there is no project")
		return
	}
	r := gitReader{finding: f, c: &compiler{facts: f.facts, host: Host{Home: f.home, Environ: f.environ}, project: f.project}}
	files := r.configs()
	if len(files) == 0 {
		f.problem(f.project + " is no git repository, or its .git leads to one that does not lead back")
		return
	}
	for _, file := range r.c.userGitConfigs() {
		r.follow(file)
	}
	r.remotes = true
	for _, file := range files {
		r.follow(file)
	}
	for _, s := range r.urls {
		for _, url := range r.rewrite(s) {
			if e, ok := gitEndpoint(url); ok {
				f.addEndpoint(e, s.from)
			}
		}
	}
	if len(f.endpoints) == 0 {
		f.problem(files[0] + " names no remote that is reached by https or ssh")
	}
}

// gitReader reads configuration of git. What finds and follows its files is the
// compiler's, which protects them.
type gitReader struct {
	*finding
	c        *compiler
	dir      string // the git directory
	seen     []string
	remotes  bool // whether the files read now are those of the repository
	urls     []setting
	rewrites []gitRewrite
}

// gitRewrite is url.BASE.insteadOf or pushInsteadOf.
type gitRewrite struct {
	base, prefix string
	push         bool
}

// configs lists the configuration files of the project's repository and of its
// submodules'.
func (r *gitReader) configs() []string {
	file := join(r.project, ".git")
	at, err := r.facts.resolve(file)
	if err != nil || at.missing {
		return nil
	}
	var files []string
	r.dir = at.path
	if at.info.Type != TypeDirectory {
		dir, ok := r.c.pointedDir(r.project, file)
		if !ok {
			return nil
		}
		if r.dir, ok = r.c.commonDir(dir, file); ok {
			files = append(files, join(dir, "config.worktree"))
		} else if r.dir = dir; !r.c.isSubmoduleDir(dir) {
			return nil
		}
	}
	files = slices.Concat([]string{join(r.dir, "config"), join(r.dir, "config.worktree")}, files)
	var modules []string
	left := maxGitEntries
	dir := join(r.dir, "modules")
	if info, ok := r.facts.lstat(dir); ok && info.Type == TypeDirectory && !r.c.findModules(dir, &left, &modules) {
		r.problem(dir + " holds too much to look at")
	}
	for _, m := range modules {
		files = append(files, join(m, "config"))
	}
	return files
}

// follow reads a file and those it includes.
func (r *gitReader) follow(file string) {
	at, err := r.facts.resolve(file)
	if err != nil || at.missing || slices.Contains(r.seen, at.path) || len(r.seen) == maxGitEntries {
		return
	}
	r.seen = append(r.seen, at.path)
	text, _ := r.read(file)
	includes := configFollower{c: r.c, dir: r.dir}
	for _, s := range parseGitConfig([]byte(text)) {
		isPlace := s.section == "includeif" && strings.HasPrefix(s.subsection, "gitdir:") && includes.mayHold(s.subsection, at.path)
		switch {
		case len(r.urls) == maxGitEntries || len(r.rewrites) == maxGitEntries:
			r.problem(file + " has more remotes than can be looked at")
			return
		case s.key == "path" && (s.section == "include" || isPlace):
			if p, ok := r.c.gitPath(s.value, path.Dir(file)); ok {
				r.follow(p)
			}
		case s.section == "url" && (s.key == "insteadof" || s.key == "pushinsteadof"):
			r.rewrites = append(r.rewrites, gitRewrite{s.subsection, s.value, s.key == "pushinsteadof"})
		case r.remotes && isRemote(s):
			r.urls = append(r.urls, setting{s.section + "." + s.key, s.value, s.section + "." + s.subsection + "." + s.key + " of " + file})
		}
	}
}

func isRemote(s gitSetting) bool {
	return s.section == "remote" && (s.key == "url" || s.key == "pushurl") || s.section == "submodule" && s.key == "url"
}

// rewrite returns what git makes of a URL when it fetches and when it pushes. Of
// several prefixes the longest counts.
func (r *gitReader) rewrite(s setting) []string {
	var fetch, push gitRewrite
	for _, w := range r.rewrites {
		best := &fetch
		if w.push {
			best = &push
		}
		if strings.HasPrefix(s.value, w.prefix) && len(w.prefix) > len(best.prefix) {
			*best = w
		}
	}
	urls := []string{fetch.base + strings.TrimPrefix(s.value, fetch.prefix)}
	if push.prefix != "" && s.key == "remote.url" {
		urls = append(urls, push.base+strings.TrimPrefix(s.value, push.prefix))
	}
	return urls
}

const gitSSHPort = 22

// gitEndpoint understands URLs of http, https and ssh, and the form of scp,
// [user@]host:path. The rest, directories above all, needs no network, or needs
// a protocol that the gate does not know.
func gitEndpoint(url string) (grants.Endpoint, bool) {
	if strings.Contains(url, "://") {
		scheme, e, ok := parseURL(url)
		switch scheme {
		case "http", "https":
			return e, ok
		case "ssh", "git+ssh", "ssh+git":
			return bySSH(e), ok
		}
		return grants.Endpoint{}, false
	}
	// A colon behind a slash is part of a path; two name a helper of git's.
	colon := strings.IndexByte(url, ':')
	if end := strings.IndexByte(url, ']'); strings.Contains(url[:max(0, end)], "[") {
		colon = end + 1
	}
	if colon <= 0 || colon >= len(url) || url[colon] != ':' || strings.Contains(url[:colon], "/") || strings.HasPrefix(url[colon:], "::") {
		return grants.Endpoint{}, false
	}
	return scpHost(url[:colon])
}

// scpHost reads host, user@host, user@[::1], [::1], and what brackets around it
// all add to that: [host:port] and [user@host:port].
func scpHost(s string) (grants.Endpoint, bool) {
	if inner, ok := strings.CutPrefix(s, "["); ok && strings.Count(inner, ":") == 1 {
		s = strings.TrimSuffix(inner, "]")
	}
	e, ok := parseHostPort(s[strings.LastIndexByte(s, '@')+1:])
	return bySSH(e), ok
}

func bySSH(e grants.Endpoint) grants.Endpoint {
	e.SSH = true
	if e.Port == 0 {
		e.Port = gitSSHPort
	}
	return e
}
