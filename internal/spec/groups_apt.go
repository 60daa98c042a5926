package spec

import (
	"path"
	"strings"
)

// apt finds the mirrors of apt, and the proxies that it reaches them by: those
// are caches, as a rule, and all that apt talks to.
func (f *finding) apt() {
	const lists = "/etc/apt/sources.list"
	f.aptList(lists)
	for _, name := range f.list(lists + ".d") {
		file := join(lists+".d", name)
		switch {
		case strings.Trim(name, wordBytes+"-.") != "": // as apt has it
		case strings.HasSuffix(name, ".list"):
			f.aptList(file)
		case strings.HasSuffix(name, ".sources"):
			f.aptSources(file)
		}
	}
	if len(f.endpoints) == 0 {
		f.problem("neither " + lists + " nor a file of " + lists + ".d names a mirror that is reached by http or https")
		return
	}
	f.aptProxies()
}

// aptList reads sources of the form
//
//	deb [option=value ...] URI suite component ...
func (f *finding) aptList(file string) {
	text, _ := f.read(file)
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "deb" && fields[0] != "deb-src" {
			continue
		}
		fields = fields[1:]
		if strings.HasPrefix(fields[0], "[") {
			for len(fields) > 0 && !strings.HasSuffix(fields[0], "]") {
				fields = fields[1:]
			}
			fields = fields[min(1, len(fields)):]
		}
		if len(fields) > 0 {
			f.aptURI(fields[0], file)
		}
	}
}

// aptSources reads sources in paragraphs of fields.
func (f *finding) aptSources(file string) {
	text, _ := f.read(file)
	for _, fields := range parseDeb822(text) {
		switch strings.ToLower(fields["enabled"]) {
		case "no", "false", "without", "off", "disable", "0":
			continue
		}
		for _, uri := range strings.Fields(fields["uris"]) {
			f.aptURI(uri, file)
		}
	}
}

// parseDeb822 reads paragraphs of "Field: value", whose values go on in lines
// that begin with a blank. The names of fields are lower case.
func parseDeb822(text string) []map[string]string {
	var paragraphs []map[string]string
	var current map[string]string
	var field string
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "":
			current, field = nil, ""
		case line[0] == '#':
		case line[0] == ' ' || line[0] == '\t':
			if field != "" && len(current[field])+len(trimmed) < maxValue {
				current[field] += "\n" + trimmed
			}
		default:
			name, value, ok := strings.Cut(trimmed, ":")
			if field = strings.ToLower(strings.TrimSpace(name)); !ok || field == "" {
				field = ""
				continue
			}
			if current == nil {
				current = map[string]string{}
				paragraphs = append(paragraphs, current)
			}
			current[field] = strings.TrimSpace(value)
		}
	}
	return paragraphs
}

// aptURI adds a mirror, or the mirrors of a list that is kept in a file. Other
// ways than http and https, as from a disc, need no network or none of the web.
func (f *finding) aptURI(uri, file string) {
	if list, ok := strings.CutPrefix(uri, "mirror+file:"); ok {
		list = path.Clean(list) // two or three slashes at its beginning are as good as one
		text, _ := f.read(list)
		for line := range strings.Lines(text) {
			line, _, _ = strings.Cut(line, "#")
			if fields := strings.Fields(line); len(fields) > 0 {
				f.addWeb(fields[0], "mirror of "+list)
			}
		}
		return
	}
	uri = strings.TrimPrefix(uri, "mirror+")
	if rest, ok := strings.CutPrefix(uri, "mirror://"); ok {
		uri = "http://" + rest
	}
	f.addWeb(uri, "mirror of "+file)
}

// aptProxies adds Acquire::http::Proxy, that of https, and those of single hosts.
func (f *finding) aptProxies() {
	const dir = "/etc/apt/apt.conf.d"
	var files []string
	for _, name := range f.list(dir) {
		if ext := path.Ext(name); ext == "" || ext == ".conf" {
			files = append(files, join(dir, name))
		}
	}
	found := map[string]setting{}
	var keys []string
	for _, file := range append(files, "/etc/apt/apt.conf") {
		text, _ := f.read(file)
		for _, s := range parseAptConf(text) {
			rest, ok := strings.CutPrefix(s.key, "acquire::http")
			rest = strings.TrimPrefix(rest, "s")
			if !ok || rest != "::proxy" && !strings.HasPrefix(rest, "::proxy::") {
				continue
			}
			if _, again := found[s.key]; !again {
				keys = append(keys, s.key)
			}
			s.from = "proxy of " + file
			found[s.key] = s // the last counts
		}
	}
	for _, key := range keys {
		f.addWeb(found[key].value, found[key].from)
	}
}

// parseAptConf reads apt's configuration, in which
//
//	Acquire::http::Proxy "http://...";
//	Acquire { http { Proxy "http://..."; }; };
//
// say the same. Keys are lower case.
func parseAptConf(text string) []setting {
	var settings []setting
	var scopes []string
	s := aptScanner{in: text}
	for {
		name, value, end := s.statement()
		switch {
		case end == '{' && len(scopes) < maxDepth:
			scopes = append(scopes, name)
		case end == '}':
			scopes = scopes[:max(0, len(scopes)-1)]
		case end == ';':
			if name != "" {
				key := strings.ToLower(strings.Join(append(scopes, name), "::"))
				settings = append(settings, setting{key: key, value: value})
			}
		default:
			return settings
		}
	}
}

// aptScanner is a place in a configuration of apt.
type aptScanner struct {
	in string
	i  int
}

// statement reads a name and a value up to one of { } and ;, which it returns
// too, or 0 at the end of the file.
func (s *aptScanner) statement() (name, value string, end byte) {
	var words [2]string
	n := 0
	for s.i < len(s.in) {
		ch := s.in[s.i]
		rest := s.in[s.i:]
		switch {
		case strings.IndexByte("{};", ch) >= 0:
			s.i++
			return words[0], words[1], ch
		case strings.IndexByte(" \t\r\n", ch) >= 0:
			s.i++
		case ch == '#' || strings.HasPrefix(rest, "//"):
			s.past(1, "\n")
		case strings.HasPrefix(rest, "/*"):
			s.past(2, "*/")
		case ch == '"':
			words[min(n, 1)] = s.past(1, `"`)
			n++
		default:
			end := strings.IndexAny(rest, " \t\r\n{};\"")
			if end < 0 {
				end = len(rest)
			}
			words[min(n, 1)] = rest[:end]
			n++
			s.i += end
		}
	}
	return "", "", 0
}

// past moves behind the next occurrence of end, starting some bytes on, and
// returns what lies before it.
func (s *aptScanner) past(from int, end string) string {
	s.i += from
	text, _, _ := strings.Cut(s.in[s.i:], end)
	s.i = min(len(s.in), s.i+len(text)+len(end))
	return text
}
