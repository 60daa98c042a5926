package spec

import (
	"path"
	"slices"
	"strings"
)

// npm finds the registries of npm, and those that pnpm and Yarn are told to use
// instead.
func (f *finding) npm() {
	own := f.npmVariables()
	file := f.inHome(".npmrc")
	if s, ok := first(own, "userconfig"); ok {
		file = f.untilde(s.value)
	}
	var project, builtin []setting
	for _, dir := range f.projectDirs() {
		project = append(project, f.npmrc(join(dir, ".npmrc"))...)
	}
	user := f.npmrc(file)
	dir := f.npmDir()
	if dir != "" {
		builtin = f.npmrc(join(dir, "npmrc")) // comes with some installations
	}
	global := f.npmrc(f.npmGlobalConfig(slices.Concat(own, user, builtin)))
	settings := slices.Concat(own, project, user, global, builtin)
	f.npmRegistries(settings)
	for _, file := range f.inConfig("pnpm/rc") {
		f.npmRegistries(f.npmrc(file))
	}
	f.yarn()
	if _, ok := first(settings, "registry"); !ok {
		f.npmDefault(dir)
	}
}

// npmRegistries adds the registry and those of scopes, each from the first
// source that names it.
func (f *finding) npmRegistries(settings []setting) {
	for i, s := range settings {
		if !isRegistry(s.key) {
			continue
		}
		if _, stronger := first(settings[:i], s.key); !stronger {
			f.add(s.value, s.from)
		}
	}
}

// npmVariables are npm_config_registry and its like. npm does not care for
// their case, and takes an underscore for a hyphen.
func (f *finding) npmVariables() []setting {
	const prefix = "npm_config_"
	var settings []setting
	for _, v := range slices.Backward(f.environ) {
		name, value, _ := strings.Cut(v, "=")
		if len(name) <= len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) || value == "" {
			continue
		}
		key := strings.ReplaceAll(strings.ToLower(name[len(prefix):]), "_", "-")
		settings = append(settings, setting{key, value, name})
	}
	return settings
}

// npmrc reads a configuration file of npm.
func (f *finding) npmrc(file string) []setting {
	text, ok := f.read(file)
	if !ok {
		return nil
	}
	settings := parseNPMRC(text)
	if len(settings) > maxEndpoints {
		f.problem(file + " has more registries than can be true")
		return nil
	}
	for i := range settings {
		s := &settings[i]
		s.value, s.from = f.expand(s.value), s.key+" of "+file
	}
	return settings
}

// parseNPMRC reads lines of "key = value", and keeps what leads to registries.
// What follows a section's header is none of npm's settings.
func parseNPMRC(text string) []setting {
	var settings []setting
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			break
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || line[0] == '#' || line[0] == ';' {
			continue
		}
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if quoted, ok := unquote(value); ok {
			value = quoted
		} else if end := strings.IndexAny(value, "#;"); end >= 0 {
			value = strings.TrimSpace(value[:end])
		}
		key, _ = unquote(key)
		if isRegistry(key) || key == "prefix" || key == "globalconfig" {
			settings = append(settings, setting{key: key, value: value})
		}
	}
	return settings
}

// isRegistry says whether a key is that of the registry or of a scope's.
func isRegistry(key string) bool { return key == "registry" || strings.HasSuffix(key, ":registry") }

// unquote removes a pair of quotation marks around a value.
func unquote(s string) (string, bool) {
	if len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '"' && s[0] != '\'' {
		return s, false
	}
	return s[1 : len(s)-1], true
}

// expand replaces ${NAME}, ${NAME?}, ${NAME-otherwise}, ${NAME:-otherwise} and
// $NAME. What is not set stays as it is written, as the tools have it, and so do
// secrets: no host's name is made of one.
func (f *finding) expand(s string) string {
	if len(s) > maxValue {
		return s
	}
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "$")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		expression, after, braced := strings.Cut(rest, "}")
		if braced = braced && strings.HasPrefix(rest, "{"); braced {
			expression = expression[1:]
		} else {
			expression = rest[:len(rest)-len(strings.TrimLeft(rest, wordBytes))]
			after = rest[len(expression):]
		}
		if value, ok := f.evaluate(expression); ok {
			b.WriteString(value)
		} else {
			b.WriteString(s[len(before) : len(s)-len(after)])
		}
		s = after
	}
}

const wordBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

// evaluate finds the value of what stands in ${}.
func (f *finding) evaluate(expression string) (string, bool) {
	name, otherwise, has := strings.Cut(expression, "-")
	name, isEmptyToo := strings.CutSuffix(name, ":")
	if !has {
		name, has = strings.CutSuffix(name, "?")
	}
	value, ok := f.lookup(name)
	ok = ok && !isSecretName(name) && !(isEmptyToo && value == "")
	if !ok {
		return otherwise, has
	}
	return value, true
}

// untilde makes a path that starts in the home directory absolute.
func (f *finding) untilde(p string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok {
		return f.inHome(rest)
	}
	return p
}

// npmGlobalConfig is the file for all users. It lies in the directory that node
// is installed in, unless it or the directory is given.
func (f *finding) npmGlobalConfig(settings []setting) string {
	if s, ok := first(settings, "globalconfig"); ok {
		return f.untilde(s.value)
	}
	prefix := f.variable("PREFIX")
	if s, ok := first(settings, "prefix"); ok {
		prefix = f.untilde(s.value)
	}
	if prefix == "" {
		for node := range f.programs("node") {
			r, _ := f.facts.resolve(node) // found a moment ago
			prefix = path.Dir(path.Dir(r.path))
			break
		}
	}
	return path.Join(prefix, "etc/npmrc")
}

// nodeVersions are where version managers keep what their shims lead to:
// nodenv, asdf, mise and, for node and npm, Volta.
var nodeVersions = []string{"versions", "installs/nodejs", "installs/node", "tools/image/node", "tools/image/npm"}

// npmDir is the directory of npm itself, or empty.
func (f *finding) npmDir() string {
	for _, program := range []string{"npm", "node"} {
		for prefix := range f.prefixes(program, nodeVersions...) {
			for _, dir := range []string{prefix, join(prefix, "lib/node_modules/npm"), join(prefix, "share/nodejs/npm")} {
				if f.exists(join(dir, "bin/npm-cli.js")) {
					return dir
				}
			}
		}
	}
	return ""
}

// npmDefinitions are the files of npm that hold its default registry: today, in
// Debian's layout, and in versions 7 and 6.
var npmDefinitions = []string{
	"node_modules/@npmcli/config/lib/definitions/definitions.js",
	"../@npmcli/config/lib/definitions/definitions.js",
	"lib/utils/config/definitions.js",
	"lib/config/defaults.js",
}

// npmDefault adds the registry that npm uses if nothing else is configured.
func (f *finding) npmDefault(dir string) {
	const unset = "no registry is set in npm_config_registry or ~/.npmrc, and "
	if dir == "" {
		f.problem(unset + "npm, which has a default, is not in PATH")
		return
	}
	for _, name := range npmDefinitions {
		file := path.Join(dir, name)
		text, ok := f.read(file)
		if !ok {
			continue
		}
		if url := defaultRegistry(text); url != "" {
			f.add(url, "default registry of "+file)
			return
		}
	}
	f.problem(unset + "no default was found in " + dir)
}

// defaultRegistry finds the default in npm's definitions, which are written
//
//	registry: new Definition('registry', {
//	  default: 'https://...',
//
// with define('registry', { before version 10, and in version 6
//
//	registry: 'https://...',
func defaultRegistry(text string) string {
	_, rest, ok := strings.Cut(text, "('registry',")
	if ok {
		_, rest, _ = strings.Cut(rest, "default:")
	} else {
		_, rest, _ = strings.Cut(text, " registry:")
	}
	value, _, _ := strings.Cut(rest, "\n")
	url, ok := unquote(strings.Trim(value, " \t\r,"))
	if !ok {
		return ""
	}
	return url
}

// yarn adds what Yarn is told to use: in .yarnrc by its first version, in
// .yarnrc.yml by later ones. Whatever they name counts: scopes are not told
// apart from the default.
func (f *finding) yarn() {
	for _, name := range []string{"YARN_NPM_REGISTRY_SERVER", "YARN_REGISTRY"} {
		if value := f.variable(name); value != "" {
			f.add(value, name)
		}
	}
	for _, dir := range append(f.projectDirs(), f.home) {
		for _, name := range []string{".yarnrc", ".yarnrc.yml"} {
			file := path.Join(dir, name) // relative, and not read, without a home
			text, _ := f.read(file)
			for _, s := range parseYarnRC(text) {
				f.add(f.expand(s.value), s.key+" of "+file)
			}
		}
	}
}

// parseYarnRC finds the registries in a file of Yarn. Both formats have a key
// and a value on a line, with or without a colon between them, and with or
// without quotation marks around either.
func parseYarnRC(text string) []setting {
	var settings []setting
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || key[0] == '#' {
			continue
		}
		key, _ = unquote(strings.TrimSuffix(key, ":"))
		if !isRegistry(key) && key != "npmRegistryServer" {
			continue
		}
		value, _, _ = strings.Cut(value, " #")
		value, _ = unquote(strings.TrimSpace(value))
		settings = append(settings, setting{key: key, value: value})
	}
	return settings
}
