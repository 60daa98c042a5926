package spec

import (
	"encoding/json"
	"path"
	"strings"
)

// cargo finds the registries of cargo: those of its configuration, and the one
// that stands for the default source.
func (f *finding) cargo() {
	home := f.variable("CARGO_HOME")
	if !strings.HasPrefix(home, "/") {
		home = f.inHome(".cargo")
	}
	settings := f.cargoSettings(home)
	for _, s := range settings {
		if name, ok := strings.CutPrefix(s.key, "registries."); ok && strings.HasSuffix(name, ".index") {
			f.addCargo(s)
		}
	}
	replaced := f.cargoSource(settings)
	index := path.Join(home, "registry/index")
	if !f.cargoIndexes(index, replaced) && !replaced {
		f.problem("cargo's default registry is not replaced by another, and " + index +
			`, which names it after a "cargo fetch" outside of the sandbox, names none`)
	}
}

// cargoSettings reads the configuration that holds in the project: of every
// directory above it, then of cargo's home.
func (f *finding) cargoSettings(home string) []setting {
	settings := f.cargoVariables()
	var dirs []string
	for _, dir := range f.projectDirs() {
		dirs = append(dirs, join(dir, ".cargo"))
	}
	for dir := f.project; dir != "/" && dir != ""; {
		dir = path.Dir(dir)
		dirs = append(dirs, join(dir, ".cargo"))
	}
	for _, dir := range append(dirs, home) {
		// Where both exist the one with the old name counts.
		file := path.Join(dir, "config")
		if !f.exists(file) {
			file += ".toml"
		}
		text, _ := f.read(file)
		for _, s := range parseTOML(text) {
			key := strings.Join(s.path, ".")
			settings = append(settings, setting{key, s.value, key + " of " + file})
		}
	}
	return settings
}

// cargoVariables are CARGO_REGISTRIES_NAME_INDEX.
func (f *finding) cargoVariables() []setting {
	var settings []setting
	for _, v := range f.environ {
		variable, value, _ := strings.Cut(v, "=")
		rest, ok := strings.CutPrefix(variable, "CARGO_REGISTRIES_")
		if name, isIndex := strings.CutSuffix(rest, "_INDEX"); ok && isIndex && value != "" {
			key := "registries." + strings.ToLower(strings.ReplaceAll(name, "_", "-")) + ".index"
			settings = append(settings, setting{key, value, variable})
		}
	}
	return settings
}

// addCargo adds the host of an index, which may be fetched file by file or as a
// git repository.
func (f *finding) addCargo(s setting) {
	f.add(strings.TrimPrefix(s.value, "sparse+"), s.from)
}

// cargoSource follows what replaces the default source, and adds it. It reports
// whether something does; that may be a directory.
func (f *finding) cargoSource(settings []setting) bool {
	source := "crates-io"
	for range 8 { // nobody replaces more often, and a circle has to end
		with, ok := first(settings, "source."+source+".replace-with")
		if !ok {
			break
		}
		source = with.value
	}
	for _, key := range []string{"source." + source + ".registry", "registries." + source + ".index"} {
		if s, ok := first(settings, key); ok {
			f.addCargo(s)
			return true
		}
	}
	return source != "crates-io"
}

// cargoIndexes looks at the indexes that cargo has used. They lie in directories
// named after their host, with a config.json that says where the packages are.
// If the default source is not replaced it is one of these; otherwise they only
// tell what belongs to the hosts found already. It reports whether there are any.
func (f *finding) cargoIndexes(dir string, replaced bool) bool {
	var found bool
	var bare []setting // fetched as git repositories, with config.json out of reach
	for _, name := range f.list(dir) {
		cut := strings.LastIndexByte(name, '-')
		if cut < 0 || replaced && !f.has(name[:cut]) {
			continue
		}
		file := path.Join(dir, name, "config.json")
		text, ok := f.read(file)
		if !ok {
			bare = append(bare, setting{value: "https://" + name[:cut], from: path.Join(dir, name)})
			continue
		}
		found = true
		var config struct {
			Packages string `json:"dl"`
		}
		if !f.has(name[:cut]) {
			f.add("https://"+name[:cut], path.Join(dir, name))
		}
		if json.Unmarshal([]byte(text), &config) == nil && config.Packages != "" {
			f.add(config.Packages, "dl of "+file)
		}
	}
	if !found {
		for _, s := range bare {
			f.add(s.value, s.from)
		}
	}
	return found || len(bare) > 0
}

func (f *finding) has(host string) bool {
	for _, e := range f.endpoints {
		if e.Host == host {
			return true
		}
	}
	return false
}
