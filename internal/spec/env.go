package spec

import (
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// defaultPath is PATH where the caller has none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// searchPath sets PATH inside. An empty or relative entry would mean whatever
// directory the command happens to be in, so it is left out.
func (c *compiler) searchPath() {
	value, ok := c.policy.Env.Set["PATH"]
	if !ok {
		value = c.variable("PATH")
		if c.rooted != nil {
			value = c.command.Image.path()
		}
	}
	for dir := range strings.SplitSeq(value, ":") {
		if strings.HasPrefix(dir, "/") && strings.IndexByte(dir, 0) < 0 {
			c.search = append(c.search, dir)
		}
	}
	if len(c.search) == 0 {
		c.search = strings.Split(defaultPath, ":")
	}
}

// program sets the command and the files tried as its program.
func (c *compiler) program() {
	c.spec.Argv = c.command.Argv
	if len(c.command.Argv) == 0 {
		return
	}
	// What the host does not have the sandbox cannot have either, and an attempt
	// to execute costs ten times a look.
	c.spec.Exec = candidates(c.command.Argv[0], c.search, c.exists)
}

// candidates are the files to try as a program: those that may exist, or all so
// that the error is the one everybody knows.
func candidates(name string, path []string, mayExist func(file string) bool) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var all, found []string
	for _, dir := range path {
		file := strings.TrimRight(dir, "/") + "/" + name
		all = append(all, file)
		if mayExist(file) {
			found = append(found, file)
		}
	}
	if len(found) == 0 {
		return all
	}
	return found
}

// Programs lists the files to try as a program in a sandbox that stands already.
// Of exists it is asked what the host has; what the sandbox may have made for
// itself is tried in any case.
func (s *Spec) Programs(name string, exists func(file string) bool) []string {
	var path []string
	for _, v := range s.Env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			path = strings.Split(value, ":")
		}
	}
	return candidates(name, path, func(file string) bool {
		_, m := s.Access(file)
		return m == nil || m.Kind == Tmpfs || m.Kind == Private || exists(file)
	})
}

// variable returns a variable of the caller. The last of several counts, as for
// getenv in most shells' children.
func (c *compiler) variable(name string) string {
	for _, v := range slices.Backward(c.host.Environ) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// environment builds the whole environment of the command.
func (c *compiler) environment() {
	c.checkEnvRules()
	env := make(map[string]string, len(c.host.Environ)+8)
	for _, v := range c.host.Environ {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" || strings.IndexByte(v, 0) >= 0 {
			continue
		}
		switch c.judge(name, value) {
		case entersAs:
			env[name] = value
		case staysOut:
			if !slices.Contains(c.spec.OmittedEnv, name) {
				c.spec.OmittedEnv = append(c.spec.OmittedEnv, name)
			}
		case looksSecret:
			delete(env, name)
			if !slices.Contains(c.spec.DroppedEnv, name) && !c.hasPlaceholder(name) {
				c.spec.DroppedEnv = append(c.spec.DroppedEnv, name)
			}
		}
	}
	c.imageVariables(env)
	c.identify(env)
	c.proxyVariables(env)
	for name, value := range c.policy.Env.Set {
		env[name] = value
	}
	env["PATH"] = strings.Join(c.search, ":")
	env["PWD"] = c.spec.Dir
	env["BAILEY"] = "1"
	c.spec.Env = make([]string, 0, len(env))
	for name, value := range env {
		c.spec.Env = append(c.spec.Env, name+"="+value)
	}
	slices.Sort(c.spec.Env)
	slices.Sort(c.spec.DroppedEnv)
	c.spec.OmittedEnv = slices.DeleteFunc(c.spec.OmittedEnv, func(name string) bool {
		_, replaced := env[name]
		return replaced
	})
	slices.Sort(c.spec.OmittedEnv)
}

// identify sets what every program expects to know about its user and places.
func (c *compiler) identify(env map[string]string) {
	if c.host.Home != "" {
		env["HOME"] = c.host.Home
	}
	env["TMPDIR"] = "/tmp"
	user := env["USER"]
	if user == "" {
		user = env["LOGNAME"]
	}
	if user == "" {
		user = c.account()
	}
	for _, v := range [][2]string{{"USER", user}, {"LOGNAME", user}, {"SHELL", "/bin/sh"}} {
		if env[v[0]] == "" && !matchesAny(c.policy.Env.Deny, v[0]) {
			env[v[0]] = v[1]
		}
	}
}

// account is the caller's name, as the system knows it; a number if it does not. Few
// callers have to be looked up: most have a variable that says it.
func (c *compiler) account() string {
	uid := strconv.Itoa(c.host.UID)
	if uid == "0" {
		return "root"
	}
	data, err := c.facts.ReadFile("/etc/passwd")
	if err != nil {
		return uid
	}
	for line := range strings.Lines(string(data)) {
		// name:password:uid:gid:comment:home:shell
		if f := strings.SplitN(line, ":", 4); len(f) == 4 && f[2] == uid && f[0] != "" {
			return f[0]
		}
	}
	return uid
}

type verdict uint8

const (
	staysOut verdict = iota
	entersAs
	looksSecret
)

func (c *compiler) judge(name, value string) verdict {
	return judge(&c.policy.Env, name, value, c.rooted != nil)
}

// judge decides about one variable of the caller. Deny wins over everything;
// an exact name in allow wins over the secret filters, a pattern does not. In an
// image fewer mean what they do outside.
func judge(e *policy.Env, name, value string, inImage bool) verdict {
	switch {
	case neverEnters(name) || matchesAny(e.Deny, name):
		return staysOut
	case slices.Contains(e.Allow, name):
		return entersAs
	case !isListed(name, inImage) && !matchesAny(e.Allow, name):
		return staysOut
	case isSecretName(name) || SecretShape(value) != "":
		return looksSecret
	}
	return entersAs
}

// isListed says whether a variable enters without a line of the policy.
func isListed(name string, inImage bool) bool {
	return isUsual(name) && (!inImage || isUniversal(name))
}

// checkEnvRules refuses entries that could have no effect, or a wrong one.
func (c *compiler) checkEnvRules() {
	for _, name := range c.policy.Env.Allow {
		c.refuseIf(neverEnters(name), "env.allow", name, "makes programs load or run something as they start, and never enters",
			"if that is meant, give it a value in env.set")
	}
	names := make([]string, 0, len(c.policy.Env.Set))
	for name := range c.policy.Env.Set {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		c.refuseIf(name == "" || strings.ContainsAny(name, "=\x00"), "env.set", name, "is not a variable's name", "")
		c.refuseIf(strings.IndexByte(c.policy.Env.Set[name], 0) >= 0, "env.set", name, "the value holds a NUL byte", "")
	}
}

// matchesAny matches a name against exact names and names that end in *.
func matchesAny(patterns []string, name string) bool { return firstMatch(patterns, name) >= 0 }

// firstMatch is the first of exact names and names that end in * that matches a
// name, or -1.
func firstMatch(patterns []string, name string) int {
	return slices.IndexFunc(patterns, func(p string) bool {
		prefix, ok := strings.CutSuffix(p, "*")
		return ok && strings.HasPrefix(name, prefix) || p == name
	})
}

// neverEnters lists variables of the caller that make shells and the dynamic
// linker start something, or change what a script means.
func neverEnters(name string) bool {
	switch name {
	case "BASH_ENV", "BASHOPTS", "CDPATH", "ENV", "GLOBIGNORE", "IFS", "LD_AUDIT", "LD_PRELOAD", "PROMPT_COMMAND", "PS4", "SHELLOPTS":
		return true
	}
	return strings.HasPrefix(name, "BASH_FUNC_") || strings.HasPrefix(name, "BAILEY")
}

// isUsual says whether the built-in list lets a variable in.
func isUsual(name string) bool {
	if _, ok := slices.BinarySearch(usualNames, name); ok {
		return true
	}
	for _, prefix := range usualPrefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return strings.HasPrefix(name, "XDG_") && strings.HasSuffix(name, "_HOME")
}

// usualNames is sorted. docs/environment.md lists it for people, and a test
// compares the two.
var usualNames = []string{
	"AR", "ARCH", "AS",
	"CC", "CFLAGS", "CGO_CFLAGS", "CGO_CPPFLAGS", "CGO_CXXFLAGS", "CGO_ENABLED", "CGO_LDFLAGS", "CI", "CLICOLOR", "CLICOLOR_FORCE",
	"COLORFGBG", "COLORTERM", "COLUMNS", "CPATH", "CPP", "CPPFLAGS", "CURL_CA_BUNDLE", "CXX", "CXXFLAGS",
	"C_INCLUDE_PATH",
	"DEBIAN_FRONTEND", "DOTNET_ROOT",
	"EDITOR",
	"FC", "FFLAGS", "FORCE_COLOR",
	"GCC_COLORS", "GIT_EDITOR", "GIT_PAGER", "GIT_SSL_CAINFO", "GIT_TERMINAL_PROMPT",
	"GO111MODULE", "GO386", "GOAMD64", "GOARCH", "GOARM", "GOARM64", "GOBIN", "GOCACHE", "GOCOVERDIR", "GODEBUG", "GOENV",
	"GOEXPERIMENT", "GOFIPS140", "GOFLAGS", "GOGC", "GOINSECURE", "GOMAXPROCS", "GOMEMLIMIT", "GOMODCACHE", "GONOPROXY", "GONOSUMDB",
	"GOOS", "GOPATH", "GOPRIVATE", "GOPROXY", "GOROOT", "GOSUMDB", "GOTOOLCHAIN", "GOTRACEBACK", "GOVCS", "GOWASM", "GOWORK",
	"GREP_COLORS",
	"HOME", "HOSTTYPE",
	"INFOPATH",
	"JAVA_HOME",
	"LANG", "LANGUAGE", "LD", "LDFLAGS", "LD_LIBRARY_PATH", "LIBRARY_PATH", "LINES", "LOGNAME", "LS_COLORS",
	"MAKEFLAGS", "MANPAGER", "MANPATH", "MORE",
	"NM", "NO_COLOR",
	"OBJCOPY", "OPAMROOT",
	"PAGER", "PATH", "PYTHONUNBUFFERED",
	"RANLIB", "REQUESTS_CA_BUNDLE",
	"SHELL", "SHLVL", "SOURCE_DATE_EPOCH", "SSL_CERT_DIR", "SSL_CERT_FILE", "STRIP",
	"TERM", "TERMINFO", "TERMINFO_DIRS", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TZ", "TZDIR",
	"USER",
	"VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "VISUAL",
	"XDG_CONFIG_DIRS", "XDG_DATA_DIRS",
}

// usualPrefixes let in families of variables; docs/environment.md lists them
// too.
var usualPrefixes = []string{
	"ASDF_", "BUNDLE_", "BUN_", "CARGO_", "CMAKE_", "CONDA_", "DENO_", "FNM_", "GEM_", "GIT_AUTHOR_", "GIT_COMMITTER_", "GRADLE_",
	"HOMEBREW_", "JDK_", "LC_", "LESS", "MAVEN_", "MISE_", "NIX_", "NODE_", "NPM_CONFIG_", "NVM_", "PIP_", "PKG_CONFIG_", "PNPM_",
	"POETRY_", "PYENV_", "PYTHON", "RBENV_", "RUBY", "RUST", "SDKMAN_", "UV_", "VOLTA_", "YARN_", "npm_config_",
}
