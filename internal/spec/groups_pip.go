package spec

import (
	"path"
	"slices"
	"strings"
)

// pip finds the indexes of pip, and those that uv is told to use.
func (f *finding) pip() {
	settings := f.pipSettings()
	offline := isPipTrue(settings, "no-index")
	if !offline {
		f.pipURLs(settings, "index-url")
		f.pipURLs(settings, "extra-index-url")
	}
	f.pipURLs(settings, "find-links")
	f.uv()
	own, found := f.pipDefault()
	if _, configured := first(settings, "index-url"); !configured && !offline {
		if found {
			f.add(own.url, "default index of "+own.file)
		} else {
			f.problem("no index is set in PIP_INDEX_URL or pip.conf, and pip, which has a default, was not found beside a python3 in PATH")
		}
	}
	f.addFileHost(own)
}

// pipIndex is pip's default index. It serves files from another host.
type pipIndex struct {
	url, files, file string
}

// addFileHost adds the host of the files if the index they belong to is used,
// be it by default or because somebody configured it.
func (f *finding) addFileHost(own pipIndex) {
	_, index, ok := parseURL(own.url)
	if !ok || own.files == "" {
		return
	}
	for _, e := range f.endpoints {
		if e.Host == index.Host {
			f.add("https://"+own.files, "files of the default index of "+own.file)
			return
		}
	}
}

// pipSettings reads pip's variables and files, the strongest first. Keys of a
// section other than [global], which holds for one command only, are kept apart
// by a prefix.
func (f *finding) pipSettings() []setting {
	var settings []setting
	for _, key := range []string{"index-url", "extra-index-url", "find-links", "no-index"} {
		name := "PIP_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
		if value := f.variable(name); value != "" {
			settings = append(settings, setting{key, value, name})
		}
	}
	for _, file := range f.pipFiles() {
		text, _ := f.read(file)
		for _, s := range slices.Backward(parseINI(text)) { // the last in a file counts
			key := strings.ReplaceAll(s.key, "_", "-")
			from := key + " of " + file
			if s.section != "global" {
				key = s.section + "." + key
			}
			settings = append(settings, setting{key, s.value, from})
		}
	}
	return settings
}

// pipFiles lists pip's files, the strongest first.
func (f *finding) pipFiles() []string {
	var files []string
	given, ok := f.lookup("PIP_CONFIG_FILE")
	if ok && given == "/dev/null" { // its way to say none
		return nil
	}
	files = append(files, given)
	if env := f.variable("VIRTUAL_ENV"); env != "" {
		files = append(files, path.Join(env, "pip.conf"))
	}
	files = append(files, f.inConfig("pip/pip.conf")...)
	files = append(files, f.inHome(".pip/pip.conf"), "/etc/pip.conf")
	dirs := f.variable("XDG_CONFIG_DIRS")
	if dirs == "" {
		dirs = "/etc/xdg"
	}
	for dir := range strings.SplitSeq(dirs, ":") {
		files = append(files, path.Join(dir, "pip/pip.conf"))
	}
	return append(files, "/Library/Application Support/pip/pip.conf")
}

// pipURLs adds the values of a key: the one that holds for all commands, and
// those of single commands that a variable does not override.
func (f *finding) pipURLs(settings []setting, key string) {
	name := "PIP_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
	var seen []string
	for _, s := range settings {
		if s.key != key && !strings.HasSuffix(s.key, "."+key) || slices.Contains(seen, s.key) {
			continue
		}
		seen = append(seen, s.key)
		for _, url := range strings.Fields(s.value) {
			f.pipURL(key, url, s.from)
		}
		if s.from == name || len(seen) > maxEndpoints {
			return
		}
	}
}

// pipURL adds a value of a key. Links may be found in directories.
func (f *finding) pipURL(key, url, from string) {
	if strings.HasSuffix(key, "find-links") {
		f.addWeb(url, from)
		return
	}
	f.add(url, from)
}

func isPipTrue(settings []setting, key string) bool {
	s, _ := first(settings, key)
	switch strings.ToLower(s.value) {
	case "y", "yes", "t", "true", "on", "1":
		return true
	}
	return false
}

// iniSetting is one value of an ini file, with the section it stands in. Section
// and key are lower case.
type iniSetting struct {
	section string
	setting
}

// parseINI reads what Python's configparser does: "key = value" or "key: value",
// comments on lines of their own, and values that go on in indented lines.
func parseINI(text string) []iniSetting {
	var settings []iniSetting
	var section string
	open := false // a value that can go on
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || trimmed[0] == '#' || trimmed[0] == ';':
			continue
		case open && (line[0] == ' ' || line[0] == '\t'):
			if last := &settings[len(settings)-1]; len(last.value)+len(trimmed) < maxValue {
				last.value += "\n" + trimmed
			}
			continue
		case trimmed[0] == '[':
			section, _, _ = strings.Cut(trimmed[1:], "]")
			section, open = strings.ToLower(section), false
			continue
		}
		sep := strings.IndexAny(trimmed, "=:")
		if open = sep > 0; open {
			key := strings.ToLower(strings.TrimSpace(trimmed[:sep]))
			settings = append(settings, iniSetting{section, setting{key: key, value: strings.TrimSpace(trimmed[sep+1:])}})
		}
	}
	return settings
}

// pipDefault reads pip's own sources, which lie among the packages of a python.
func (f *finding) pipDefault() (pipIndex, bool) {
	for _, program := range []struct {
		name     string
		versions []string
	}{
		{"python3", []string{"versions", "installs/python"}},
		{"python", []string{"versions", "installs/python"}},
		{"uv", []string{"share/uv/python"}}, // has pythons of its own, which come with pip
	} {
		for prefix := range f.prefixes(program.name, program.versions...) {
			if index, ok := f.pipIn(prefix); ok {
				return index, true
			}
		}
	}
	return pipIndex{}, false
}

// pipIn reads the sources of pip for the python of a prefix.
func (f *finding) pipIn(prefix string) (pipIndex, bool) {
	r, err := f.facts.resolve(join(prefix, "bin/python3"))
	if err != nil || r.missing {
		return pipIndex{}, false
	}
	version := path.Base(r.path) // such as python3.12
	for _, dir := range []string{
		path.Join(prefix, "lib", version, "site-packages"),
		path.Join(prefix, "lib/python3/dist-packages"),
		path.Join(prefix, "lib", version, "dist-packages"),
		f.inHome(".local/lib/" + version + "/site-packages"),
	} {
		file := path.Join(dir, "pip/_internal/models/index.py")
		text, _ := f.read(file)
		if url, files := defaultIndex(text); url != "" {
			return pipIndex{url, files, file}, true
		}
	}
	return pipIndex{}, false
}

// defaultIndex finds the first index in pip's sources, which is the default. It
// is written, on one line or several,
//
//	NAME = PackageIndex("https://...", file_storage_domain="...")
func defaultIndex(text string) (url, files string) {
	_, rest, ok := strings.Cut(text, " = PackageIndex(")
	if !ok {
		return "", ""
	}
	arguments, _, _ := strings.Cut(rest, ")")
	first, second, _ := strings.Cut(arguments, "file_storage_domain=")
	url, _ = unquote(strings.Trim(first, " \t\r\n,"))
	files, _ = unquote(strings.Trim(second, " \t\r\n,"))
	return url, files
}

// uv adds what uv is told to use. Without that it uses pip's default.
func (f *finding) uv() {
	for _, name := range []string{"UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"} {
		for _, url := range strings.FieldsFunc(f.variable(name), func(r rune) bool { return r == ' ' || r == ',' || r == '\n' }) {
			// An index may have a name.
			if at := strings.IndexByte(url, '='); at >= 0 && at < strings.Index(url, "://") {
				url = url[at+1:]
			}
			f.pipURL(strings.ToLower(strings.ReplaceAll(name, "_", "-")), url, name)
		}
	}
	files := []string{f.variable("UV_CONFIG_FILE")}
	for _, dir := range f.projectDirs() {
		files = append(files, join(dir, "uv.toml"), join(dir, "pyproject.toml"))
	}
	files = append(files, f.inConfig("uv/uv.toml")...)
	for _, file := range append(files, "/etc/uv/uv.toml") {
		text, _ := f.read(file)
		for _, s := range parseTOML(text) {
			names := s.path
			if path.Base(file) == "pyproject.toml" {
				if len(names) < 2 || names[0] != "tool" || names[1] != "uv" {
					continue
				}
				names = names[2:]
			}
			if key := strings.Join(names, "."); isUVIndex(key) {
				f.pipURL(key, s.value, key+" of "+file)
			}
		}
	}
}

func isUVIndex(key string) bool {
	switch strings.TrimPrefix(key, "pip.") {
	case "index-url", "extra-index-url", "find-links", "index.url":
		return true
	}
	return false
}
