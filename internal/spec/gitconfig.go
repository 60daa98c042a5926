package spec

import (
	"path"
	"slices"
	"strings"
)

// userGitConfigs lists the files that configure git for every repository. All
// that git may read are in it, also where a variable makes it read another: the
// next git may be started without the variable.
func (c *compiler) userGitConfigs() []string {
	files := []string{"/etc/gitconfig", "/usr/local/etc/gitconfig"}
	if home := c.host.Home; home != "" {
		config := c.variable("XDG_CONFIG_HOME")
		if !strings.HasPrefix(config, "/") {
			config = join(home, ".config")
		}
		files = append(files, join(config, "git/config"), join(home, ".gitconfig"))
	}
	for _, name := range []string{"GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL"} {
		if file := c.variable(name); strings.HasPrefix(file, "/") {
			files = append(files, file)
		}
	}
	return files
}

// followUserConfigs is followConfig for the user's own configuration, whose
// files it protects as well: they may lie in a directory the command can write,
// as they do in a repository of dotfiles.
func (c *compiler) followUserConfigs(dir string) []hooksPath {
	f := configFollower{c: c, dir: dir}
	for _, file := range c.userGitConfigs() {
		f.include("configuration of git", file)
	}
	return f.hooks
}

// followConfig returns every core.hooksPath that a configuration file of the
// git directory dir sets, itself or by the files it includes, and protects
// those files.
func (c *compiler) followConfig(dir, file string) []hooksPath {
	f := configFollower{c: c, dir: dir, always: true}
	if r, err := c.facts.resolve(file); err == nil && !r.missing {
		f.follow(file, r)
	}
	return f.hooks
}

type configFollower struct {
	c      *compiler
	dir    string
	always bool
	seen   []string // each file is read once, however often it is included
	hooks  []hooksPath
}

// include protects a file and follows it.
func (f *configFollower) include(name, file string) {
	r, ok := f.c.protectPath(name, file, f.always)
	if ok {
		f.follow(file, r)
	}
	if f.always && r.missing && f.c.access(r.path) == AccessWrite {
		f.c.warnMissing(r.path, "touch")
	}
}

// follow reads a file that git calls file and that is really r.
func (f *configFollower) follow(file string, r resolved) {
	if r.info.Type != TypeRegular || slices.Contains(f.seen, r.path) {
		return
	}
	f.seen = append(f.seen, r.path)
	data, err := f.c.facts.ReadFile(r.path)
	if err != nil {
		return
	}
	for _, s := range parseGitConfig(data) {
		switch {
		case s.section == "core" && s.subsection == "" && s.key == "hookspath":
			f.hooks = append(f.hooks, hooksPath{s.value, file})
		case s.section == "include" && s.key == "path", s.section == "includeif" && s.key == "path" && f.mayHold(s.subsection, r.path):
			// Relative to the name and not to what a link leads to, as git has it.
			if p, ok := f.c.gitPath(s.value, path.Dir(file)); ok {
				f.include(s.section+"."+s.key+" of "+f.c.inProject(file), p)
			}
		}
	}
}

// mayHold says whether the condition of an include in file can hold for the git
// directory. Decided is only what is written as a place: a branch or a remote,
// which others ask for, is the command's to change, and a pattern may match a
// link that leads here.
func (f *configFollower) mayHold(condition, file string) bool {
	place, ok := strings.CutPrefix(condition, "gitdir:")
	if !ok {
		return true
	}
	if rest, ok := strings.CutPrefix(place, "./"); ok {
		place = join(path.Dir(file), rest)
	} else if rest, ok := strings.CutPrefix(place, "~/"); ok {
		place = join(f.c.host.Home, rest)
	}
	if strings.HasSuffix(place, "/**") {
		place = place[:len(place)-2]
	}
	if !strings.HasPrefix(place, "/") || strings.ContainsAny(place, `*?[\`) {
		return true
	}
	deep := strings.HasSuffix(place, "/") // everything below it is meant
	places := []string{clean(place)}
	if r, err := f.c.facts.resolve(place); err == nil {
		places = append(places, r.path)
	}
	return slices.ContainsFunc(places, func(p string) bool {
		// A place inside may be the directory of a submodule or worktree.
		return Covers(f.dir, p) || deep && Covers(p, f.dir)
	})
}

// gitPath makes a path in git's configuration absolute; a relative one starts
// at from. It is not ok for the two kinds that never lead into a project:
// another user's home, and what git was installed with.
func (c *compiler) gitPath(value, from string) (string, bool) {
	value = strings.TrimPrefix(value, ":(optional)")
	switch {
	case value == "" || strings.IndexByte(value, 0) >= 0:
		return "", false
	case strings.HasPrefix(value, "/"):
		return value, true
	case strings.HasPrefix(value, "~/"):
		return c.host.Home + value[1:], c.host.Home != ""
	case value[0] == '~' || strings.HasPrefix(value, "%(prefix)/"):
		return "", false
	}
	// Not cleaned: a ".." after a link means what the kernel makes of it.
	return join(from, value), true
}

// gitSetting is one "key = value" of a git configuration file. Section and key
// are lower case; a subsection keeps its case.
type gitSetting struct {
	section, subsection, key, value string
}

// parseGitConfig reads a git configuration file as git does, as far as values
// that name paths are concerned: comments, quotes, escapes, continued lines,
// and sections in both spellings. What git would reject is skipped here: a file
// git does not read starts nothing.
func parseGitConfig(data []byte) []gitSetting {
	s := gitScanner{in: string(data)}
	var out []gitSetting
	var section, subsection string
	for !s.done() {
		s.skip(" \t\r\n")
		switch {
		case s.done():
		case s.in[s.i] == '#' || s.in[s.i] == ';':
			s.line()
		case s.in[s.i] == '[':
			section, subsection = s.header()
		default:
			if key, value, ok := s.setting(); ok {
				out = append(out, gitSetting{section, subsection, key, value})
			}
		}
	}
	return out
}

type gitScanner struct {
	in string
	i  int
}

func (s *gitScanner) done() bool { return s.i >= len(s.in) }

func (s *gitScanner) skip(set string) {
	for !s.done() && strings.IndexByte(set, s.in[s.i]) >= 0 {
		s.i++
	}
}

// line skips the rest of the line.
func (s *gitScanner) line() {
	if n := strings.IndexByte(s.in[s.i:], '\n'); n >= 0 {
		s.i += n + 1
		return
	}
	s.i = len(s.in)
}

// header reads [section], [section.subsection] or [section "subsection"].
func (s *gitScanner) header() (section, subsection string) {
	s.i++
	start := s.i
	for !s.done() && strings.IndexByte("] \t\n", s.in[s.i]) < 0 {
		s.i++
	}
	section = strings.ToLower(s.in[start:s.i])
	if dot := strings.IndexByte(section, '.'); dot >= 0 {
		section, subsection = section[:dot], section[dot+1:]
	}
	s.skip(" \t")
	if !s.done() && s.in[s.i] == '"' {
		s.i++
		subsection = s.quoted()
	}
	s.skip(" \t")
	if !s.done() && s.in[s.i] == ']' {
		s.i++
	}
	return section, subsection
}

// quoted reads up to the closing quote of a subsection.
func (s *gitScanner) quoted() string {
	var b strings.Builder
	for !s.done() && s.in[s.i] != '\n' {
		ch := s.in[s.i]
		s.i++
		if ch == '"' {
			break
		}
		if ch == '\\' && !s.done() {
			ch = s.in[s.i]
			s.i++
		}
		b.WriteByte(ch)
	}
	return b.String()
}

// setting reads one key and its value; a key alone means true, and is of no
// interest here.
func (s *gitScanner) setting() (key, value string, ok bool) {
	start := s.i
	for !s.done() && strings.IndexByte("= \t\r\n", s.in[s.i]) < 0 {
		s.i++
	}
	key = strings.ToLower(s.in[start:s.i])
	s.skip(" \t")
	if s.done() || s.in[s.i] != '=' || key == "" {
		s.line()
		return "", "", false
	}
	s.i++
	s.skip(" \t")
	return key, s.value(), true
}

// value reads to the end of the line. Blanks at the end do not count unless
// quoted.
func (s *gitScanner) value() string {
	var b strings.Builder
	keep := 0 // length up to the last byte that counts
	inQuotes := false
	for !s.done() {
		ch := s.in[s.i]
		s.i++
		switch {
		case ch == '\n':
			return b.String()[:keep]
		case ch == '"':
			inQuotes = !inQuotes
			keep = b.Len()
			continue
		case (ch == '#' || ch == ';') && !inQuotes:
			s.line()
			return b.String()[:keep]
		case ch == '\\':
			if s.done() {
				return b.String()[:keep]
			}
			esc := s.in[s.i]
			s.i++
			if esc == '\r' && !s.done() && s.in[s.i] == '\n' {
				s.i++
				continue
			}
			switch esc {
			case '\n':
				continue
			case 'n':
				esc = '\n'
			case 't':
				esc = '\t'
			case 'b':
				esc = '\b'
			}
			b.WriteByte(esc)
			keep = b.Len()
			continue
		}
		blank := !inQuotes && (ch == ' ' || ch == '\t' || ch == '\r')
		if blank && b.Len() == 0 {
			continue
		}
		b.WriteByte(ch)
		if !blank {
			keep = b.Len()
		}
	}
	return b.String()[:keep]
}
