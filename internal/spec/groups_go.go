package spec

import (
	"path"
	"strings"
)

// golang finds the module proxies and the checksum database of the go command,
// and the hosts whose modules it fetches past them.
func (f *finding) golang() {
	settings := f.goSettings()
	proxies, ok := first(settings, "GOPROXY")
	if !ok {
		f.problem("GOPROXY is not set, and no go in PATH has a go.env with its default")
		return
	}
	if proxies.value == "off" {
		return
	}
	for _, proxy := range strings.FieldsFunc(proxies.value, func(r rune) bool { return r == ',' || r == '|' }) {
		switch proxy = strings.TrimSpace(proxy); proxy {
		case "direct", "off", "noproxy", "":
		default:
			f.add(proxy, proxies.from)
		}
	}
	if s, ok := first(settings, "GOSUMDB"); ok {
		f.goChecksums(s)
	}
	private, ok := first(settings, "GONOPROXY")
	if !ok {
		private, ok = first(settings, "GOPRIVATE")
	}
	if ok {
		f.goPrivate(private)
	}
}

// goSettings reads the environment, what "go env -w" wrote, and what the go
// command came with.
func (f *finding) goSettings() []setting {
	var settings []setting
	for _, name := range []string{"GOPROXY", "GOSUMDB", "GONOPROXY", "GOPRIVATE"} {
		if value := f.variable(name); value != "" {
			settings = append(settings, setting{name, value, name})
		}
	}
	files := f.inConfig("go/env")
	if given := f.variable("GOENV"); given != "" {
		files = []string{given} // "off" is no file
	}
	for _, file := range files {
		settings = append(settings, f.goEnvFile(file)...)
	}
	return append(settings, f.goDefaults()...)
}

func (f *finding) goEnvFile(file string) []setting {
	text, _ := f.read(file)
	var settings []setting
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if key, value, ok := strings.Cut(line, "="); ok && value != "" && line[0] != '#' {
			settings = append(settings, setting{key, value, key + " of " + file})
		}
	}
	return settings
}

// goDefaults reads what the go command came with.
func (f *finding) goDefaults() []setting {
	if root := f.variable("GOROOT"); root != "" {
		return f.goRoot(root)
	}
	for prefix := range f.prefixes("go", "versions", "installs/golang", "installs/go") {
		// asdf keeps the root one directory further down.
		for _, root := range []string{prefix, join(prefix, "go")} {
			if settings := f.goRoot(root); len(settings) > 0 {
				return settings
			}
		}
	}
	return nil
}

// goRoot reads the defaults in a root. Before version 1.21 they are in the
// sources of the command, as
//
//	GOPROXY = envOr("GOPROXY", "https://...")
func (f *finding) goRoot(root string) []setting {
	settings := f.goEnvFile(path.Join(root, "go.env"))
	if len(settings) > 0 {
		return settings
	}
	file := path.Join(root, "src/cmd/go/internal/cfg/cfg.go")
	text, _ := f.read(file)
	for _, key := range []string{"GOPROXY", "GOSUMDB"} {
		_, rest, ok := strings.Cut(text, `envOr("`+key+`", "`)
		if value, _, closed := strings.Cut(rest, `"`); ok && closed && value != "" {
			settings = append(settings, setting{key, value, key + " of " + file})
		}
	}
	return settings
}

// goChecksums adds the checksum database: a name with or without a key, which
// is its host, unless a URL follows.
func (f *finding) goChecksums(s setting) {
	fields := strings.Fields(s.value)
	switch {
	case len(fields) == 0 || fields[0] == "off":
	case len(fields) > 1:
		f.add(fields[1], s.from)
	default:
		name, _, _ := strings.Cut(fields[0], "+")
		f.add("https://"+name, s.from)
	}
}

// goPrivate adds the hosts of patterns for module paths. Only a pattern for all
// names below one has a counterpart among hosts.
func (f *finding) goPrivate(s setting) {
	for pattern := range strings.SplitSeq(s.value, ",") {
		pattern, _, _ = strings.Cut(strings.TrimSpace(pattern), "/")
		if pattern == "" || pattern == "none" {
			continue
		}
		domain, all := strings.CutPrefix(pattern, "*.")
		e, ok := parseHostPort(domain)
		// All names of a top-level domain would be as good as all.
		if !ok || all && !strings.Contains(e.Host, ".") {
			f.problem(s.from + ": the pattern " + pattern + " cannot be said of hosts")
			continue
		}
		if all {
			e.Host = "*." + e.Host
		}
		f.addEndpoint(e, s.from)
	}
}
