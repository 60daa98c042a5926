package spec

import "strings"

// isSecretName says whether a variable's name says that its value is a secret.
// Names are compared word by word, without regard to case, so that
// GIT_AUTHOR_NAME is not taken for AUTH.
func isSecretName(name string) bool {
	// Bundler keeps the credentials of a host in a variable named after it,
	// with two underscores for a dot.
	if name == "NIX_CONFIG" || strings.HasPrefix(name, "BUNDLE_") && strings.Contains(name, "__") {
		return true
	}
	var last string
	for rest := name; rest != ""; {
		i := 0
		for i < len(rest) && isAlnum(rest[i]) {
			i++
		}
		word := rest[:i]
		rest = rest[min(i+1, len(rest)):]
		if word == "" {
			continue
		}
		if isSecretWord(word) || last != "" && isSecretPair(last, word, rest == "") {
			return true
		}
		last = word
	}
	return false
}

func isSecretWord(word string) bool {
	switch lower(word, new([16]byte)) {
	case "token", "tokens", "secret", "secrets", "password", "passwords", "passwd", "passphrase", "pass", "credential", "credentials", "creds",
		"auth", "authtoken", "authorization", "accesstoken", "apikey", "apikeys", "apitoken", "accesskey", "privatekey", "secretkey",
		"bearer", "cookie", "cookies", "jwt", "session", "netrc", "pat", "pgpassword", "sshpass", "connstr", "connectionstring":
		return true
	}
	return false
}

// isSecretPair says whether a word behind another one makes a secret of the name.
func isSecretPair(before, word string, last bool) bool {
	before = lower(before, new([16]byte))
	switch lower(word, new([16]byte)) {
	case "key":
		return isKeyKind(before) || last && !isPlainKey(before)
	case "pw", "pwd":
		return last // of a password, and not the working directory
	case "string":
		return before == "connection"
	}
	return false
}

// isKeyKind says whether a key of this kind is a secret, whatever follows.
func isKeyKind(word string) bool {
	switch word {
	case "api", "access", "private", "secret", "signing", "encryption", "master", "ssh", "gpg", "license":
		return true
	}
	return false
}

// isPlainKey says whether a key of this kind opens nothing.
func isPlainKey(word string) bool {
	switch word {
	case "public", "sort", "primary", "foreign", "partition", "row", "group", "index", "cache", "hot", "map":
		return true
	}
	return false
}

// lower is strings.ToLower for short words, in a buffer the caller has. Longer
// ones come back empty: they are in none of the lists.
func lower(word string, buf *[16]byte) string {
	if len(word) > len(buf) {
		return ""
	}
	for i := range len(word) {
		ch := word[i]
		if 'A' <= ch && ch <= 'Z' {
			ch += 'a' - 'A'
		}
		buf[i] = ch
	}
	return string(buf[:len(word)])
}

func isAlnum(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}

func isUpperAlnum(b byte) bool { return '0' <= b && b <= '9' || 'A' <= b && b <= 'Z' }

// isWordByte is what tokens are made of.
func isWordByte(b byte) bool { return isAlnum(b) || b == '_' || b == '-' }

// shape is a form of token: a prefix, then at least min bytes of a class.
type shape struct {
	prefix string
	min    int
	class  func(byte) bool
	name   string
}

// shapes are what well-known services issue, each with a mark of its own.
// Nothing is guessed from how random a value looks. docs/environment.md lists
// them for people, and a test compares the two.
var shapes = []shape{
	{"ghp_", 16, isAlnum, "GitHub token"},
	{"gho_", 16, isAlnum, "GitHub token"},
	{"ghu_", 16, isAlnum, "GitHub token"},
	{"ghs_", 16, isAlnum, "GitHub token"},
	{"ghr_", 16, isAlnum, "GitHub token"},
	{"github_pat_", 16, isWordByte, "GitHub token"},
	{"glpat-", 16, isWordByte, "GitLab token"},
	{"sk-ant-", 8, isWordByte, "Anthropic key"},
	{"sk-proj-", 16, isWordByte, "OpenAI key"},
	{"sk-svcacct-", 16, isWordByte, "OpenAI key"},
	{"sk-or-", 16, isWordByte, "OpenRouter key"},
	{"sk-", 20, isAlnum, "OpenAI key"},
	{"AKIA", 16, isUpperAlnum, "AWS key"},
	{"ASIA", 16, isUpperAlnum, "AWS key"},
	{"AIza", 30, isWordByte, "Google key"},
	{"ya29.", 16, isWordByte, "Google token"},
	{"GOCSPX-", 16, isWordByte, "Google client secret"},
	{"xoxa-", 10, isWordByte, "Slack token"},
	{"xoxb-", 10, isWordByte, "Slack token"},
	{"xoxe-", 10, isWordByte, "Slack token"},
	{"xoxp-", 10, isWordByte, "Slack token"},
	{"xoxr-", 10, isWordByte, "Slack token"},
	{"xoxs-", 10, isWordByte, "Slack token"},
	{"xapp-", 10, isWordByte, "Slack token"},
	{"npm_", 36, isAlnum, "npm token"},
	{"pypi-", 16, isWordByte, "PyPI token"},
	{"hf_", 30, isAlnum, "Hugging Face token"},
	{"dop_v1_", 32, isAlnum, "DigitalOcean token"},
	{"sk_live_", 16, isAlnum, "Stripe key"},
	{"rk_live_", 16, isAlnum, "Stripe key"},
	{"shpat_", 16, isAlnum, "Shopify token"},
	{"AGE-SECRET-KEY-", 16, isAlnum, "age key"},
}

// SecretShape names the kind of secret that a value holds, or is empty. A
// secret counts anywhere in the value, but only at the start of a word.
func SecretShape(value string) string {
	if i := strings.Index(value, "-----BEGIN "); i >= 0 && strings.Contains(value[i:], "PRIVATE KEY") {
		return "private key"
	}
	for i := range len(value) {
		if value[i] == ':' && hasPassword(value, i) {
			return "password in a URL"
		}
		if i > 0 && isWordByte(value[i-1]) {
			continue
		}
		if name := tokenShape(value[i:]); name != "" {
			return name
		}
	}
	return ""
}

func tokenShape(s string) string {
	switch s[0] {
	case 'A', 'G', 'a', 'd', 'g', 'h', 'n', 'p', 'r', 's', 'x', 'y':
		for i := range shapes {
			p := &shapes[i]
			if strings.HasPrefix(s, p.prefix) && run(s[len(p.prefix):], p.class) >= p.min {
				return p.name
			}
		}
	case 'S':
		if dotted(s, "SG.", 16, "", 16) {
			return "SendGrid key"
		}
	case 'e':
		if isJWT(s) {
			return "JSON web token"
		}
	}
	return ""
}

// run counts the leading bytes of a class.
func run(s string, class func(byte) bool) int {
	n := 0
	for n < len(s) && class(s[n]) {
		n++
	}
	return n
}

// dotted matches a prefix, a word, a dot, a second prefix and a word.
func dotted(s, prefix string, first int, second string, rest int) bool {
	s, ok := strings.CutPrefix(s, prefix)
	n := run(s, isWordByte)
	if !ok || n < first {
		return false
	}
	s, ok = strings.CutPrefix(s[n:], "."+second)
	return ok && run(s, isWordByte) >= rest
}

// isJWT matches header.payload.signature; header and payload are JSON objects,
// whose encoding starts with eyJ.
func isJWT(s string) bool {
	if !dotted(s, "eyJ", 8, "eyJ", 4) {
		return false
	}
	i := strings.IndexByte(s, '.')
	s = s[i+1:]
	i = run(s, isWordByte)
	return i < len(s) && s[i] == '.' && run(s[i+1:], isWordByte) >= 8
}

// hasPassword says whether the colon at i begins "://user:password@", or
// "://user@" in an address of the web: there the user is often a token.
func hasPassword(s string, i int) bool {
	if i == 0 || !isAlnum(s[i-1]) || !strings.HasPrefix(s[i:], "://") {
		return false
	}
	authority := s[i+3:]
	if end := strings.IndexAny(authority, "/?# \t\r\n\"'"); end >= 0 {
		authority = authority[:end]
	}
	at := strings.LastIndexByte(authority, '@')
	if at <= 0 {
		return false
	}
	if scheme := lower(s[max(0, i-5):i], new([16]byte)); strings.HasSuffix(scheme, "http") || scheme == "https" {
		return true
	}
	colon := strings.IndexByte(authority[:at], ':')
	return colon >= 0 && colon+1 < at
}
