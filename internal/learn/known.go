package learn

import (
	"path"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// isNoise says whether looks at a path tell nothing about a command: places
// that every sandbox has of its own, and what the loader and the C library look
// for in every program.
func isNoise(p string) bool {
	return p == "/" || coversAny(noise, p)
}

var noise = []string{
	"/proc", "/dev", "/sys",
	"/etc/ld.so.cache", "/etc/ld.so.preload",
	"/usr/lib/locale", "/usr/share/locale", "/usr/share/locale-langpack",
}

// isDenial says whether the reason of a mount is a rule that forbids writing,
// rather than a grant that does not reach as far.
func isDenial(why string) bool {
	return strings.HasPrefix(why, "protected ") || strings.HasPrefix(why, "filesystem.denyWrite ")
}

// homeSecrets are paths below a home directory that hold keys, credentials,
// sessions and histories.
var homeSecrets = []string{
	".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".age",
	".config/gcloud", ".config/gh", ".config/glab-cli", ".config/hub", ".config/op", ".config/sops", ".config/rclone",
	".config/git/credentials", ".git-credentials", ".netrc", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc",
	".config/pip", ".pip", ".config/containers", ".terraform.d", ".terraformrc", ".vault-token",
	".cargo/credentials", ".cargo/credentials.toml", ".m2/settings.xml", ".m2/settings-security.xml",
	".gradle/gradle.properties", ".gem/credentials", ".bundle/config", ".local/share/uv/credentials",
	".nuget/NuGet", ".composer/auth.json", ".config/composer/auth.json",
	".pgpass", ".my.cnf", ".mylogin.cnf", ".s3cfg", ".boto", ".databrickscfg", ".snowflake",
	".local/share/keyrings", ".local/share/kwalletd", ".pki", ".Xauthority", ".ICEauthority",
	".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge",
	".claude", ".claude.json", ".codex", ".gemini", ".config/github-copilot",
	".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history", ".mysql_history",
	".sqlite_history", ".lesshst", ".viminfo", ".local/share/fish",
}

// SecretPaths are the well-known places of secrets in a home directory, whether
// they exist or not.
func SecretPaths(home string) []string {
	paths := make([]string, 0, len(homeSecrets))
	for _, name := range homeSecrets {
		paths = append(paths, path.Join(home, name))
	}
	return paths
}

// isSecret says whether a path is known to hold a secret, or is named like one.
func isSecret(home, p string) bool {
	if rest, ok := below(home, p); ok && coversAny(homeSecrets, rest) {
		return true
	}
	dir, name := path.Split(strings.ToLower(p))
	for above := range strings.SplitSeq(dir, "/") {
		if isSecretDir(above) {
			return true
		}
	}
	return isSecretName(name)
}

// isSecretDir judges the name of a directory around a file. A word among others
// says nothing there: a library about tokens holds none.
func isSecretDir(name string) bool {
	switch name {
	case ".ssh", ".gnupg", ".aws", ".kube":
		return true
	}
	return isSecretWord(strings.TrimPrefix(name, "."))
}

// isSecretName judges the last name of a path, in lower case.
func isSecretName(name string) bool {
	if isSecretDir(name) {
		return true
	}
	switch name {
	case ".netrc", ".npmrc", ".pypirc", ".pgpass", ".git-credentials", ".htpasswd", ".vault-token":
		return true
	}
	stem, extension, _ := strings.Cut(strings.TrimPrefix(name, "."), ".")
	if name == ".env" || strings.HasPrefix(name, ".env.") && !isTemplate(extension) {
		return true
	}
	switch path.Ext(name) {
	case ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".gpg", ".age":
		return true
	case ".pem":
		return !strings.Contains(name, "cert") && !strings.HasPrefix(name, "ca")
	}
	if isSource(path.Ext(name)) {
		return false
	}
	words := strings.FieldsFunc(stem, func(r rune) bool { return r == '-' || r == '_' || r == ' ' })
	return slices.ContainsFunc(words, isSecretWord) || strings.HasPrefix(stem, "id_") && isKeyKind(stem[len("id_"):])
}

// isTemplate says whether the second half of ".env.example" says that it holds
// no values.
func isTemplate(extension string) bool {
	switch extension {
	case "example", "sample", "template", "dist", "defaults":
		return true
	}
	return false
}

func isSecretWord(word string) bool {
	switch word {
	case "secret", "secrets", "credential", "credentials", "creds", "token", "tokens", "password", "passwords", "passwd", "passphrase", "apikey", "privatekey":
		return true
	}
	return false
}

func isKeyKind(kind string) bool {
	switch kind {
	case "rsa", "dsa", "ecdsa", "ed25519", "ecdsa_sk", "ed25519_sk":
		return true
	}
	return false
}

// isSource says whether a file is a program's text, in which a token is a word
// of a language.
func isSource(extension string) bool {
	switch extension {
	case ".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx", ".d", ".map", ".py", ".pyc", ".pyi", ".rb", ".go", ".rs", ".c", ".h", ".cc", ".cpp", ".hpp",
		".java", ".class", ".jar", ".php", ".lua", ".pl", ".pm", ".sh", ".html", ".css", ".md", ".so", ".o", ".a":
		return true
	}
	return false
}

// homeCaches are directories below a home directory that tools fill for
// themselves. In those whose name ends in a slash each tool has one of its own.
var homeCaches = []string{
	".cache/", "Library/Caches/",
	".npm", ".yarn", ".pnpm-store", ".node-gyp", ".bun/install/cache", ".gradle", ".m2", ".ivy2", ".sbt",
	".cargo/registry", ".cargo/git", ".cargo/.package-cache", ".cargo/.package-cache-mutate", ".cargo/.global-cache", ".ccache", ".nuget/packages", ".composer/cache", ".pub-cache", ".cpan", ".cpanm",
	".stack", ".cabal", ".hex", ".mix", ".terraform.d/plugin-cache", ".electron-gyp", ".gem/specs",
	"go/pkg/mod", ".config/go/telemetry",
}

// cacheOf returns the cache that a path lies in, or "".
func cacheOf(home, p string) string {
	rest, ok := below(home, p)
	if !ok {
		return ""
	}
	for _, c := range homeCaches {
		dir, each := strings.CutSuffix(c, "/")
		if !spec.Covers(dir, rest) {
			continue
		}
		if !each {
			return path.Join(home, dir)
		}
		if inner := strings.TrimPrefix(rest[len(dir):], "/"); inner != "" {
			tool, _, _ := strings.Cut(inner, "/")
			return path.Join(home, dir, tool)
		}
	}
	return ""
}

// homeManagers are directories in which version managers and installers keep
// programs: whoever needs one file of them needs all.
var homeManagers = []struct{ dir, name string }{
	{".nvm", "nvm"},
	{".fnm", "fnm"},
	{".local/share/fnm", "fnm"},
	{".volta", "volta"},
	{".nodenv", "nodenv"},
	{".n", "n"},
	{".nodebrew", "nodebrew"},
	{".bun", "bun"},
	{".deno", "deno"},
	{".asdf", "asdf"},
	{".local/share/mise", "mise"},
	{".local/share/rtx", "rtx"},
	{".proto", "proto"},
	{".pyenv", "pyenv"},
	{".local/share/uv", "uv"},
	{".local/share/pipx", "pipx"},
	{".conda", "conda"},
	{"miniconda3", "conda"},
	{"anaconda3", "conda"},
	{"miniforge3", "conda"},
	{"mambaforge", "conda"},
	{".pixi", "pixi"},
	{".rustup", "rustup"},
	{".cargo/bin", "cargo"},
	{".goenv", "goenv"},
	{"sdk", "go"},
	{".rbenv", "rbenv"},
	{".rvm", "rvm"},
	{".phpenv", "phpenv"},
	{".phpbrew", "phpbrew"},
	{".sdkman", "sdkman"},
	{".jenv", "jenv"},
	{".jabba", "jabba"},
	{".dotnet", "dotnet"},
	{".ghcup", "ghcup"},
	{".opam", "opam"},
	{".elan", "elan"},
	{".juliaup", "juliaup"},
	{".swiftly", "swiftly"},
	{".linuxbrew", "Homebrew"},
	{".nix-profile", "nix"},
	{".local/bin", "programs of your own"},
}

// managerOf returns the directory of the version manager that a path lies in,
// and its name.
func managerOf(home, p string) (dir, name string) {
	rest, ok := below(home, p)
	if !ok {
		return "", ""
	}
	for _, m := range homeManagers {
		if spec.Covers(m.dir, rest) {
			return path.Join(home, m.dir), m.name
		}
	}
	return "", ""
}

// isWide says whether a directory holds so much that no command needs it as a
// whole: the root, its children, homes and the well-known shelves in them, and
// whatever holds the project.
func isWide(home, project, dir string) bool {
	if strings.Count(dir, "/") < 2 || path.Dir(dir) == "/home" {
		return true
	}
	if home != "" && spec.Covers(dir, home) || project != "" && dir != project && spec.Covers(dir, project) {
		return true
	}
	if rest, ok := below(home, dir); ok && slices.Contains(homeShelves, rest) {
		return true
	}
	return slices.Contains(shelves, dir) || path.Dir(dir) == "/run/user" || path.Dir(dir) == "/media"
}

var homeShelves = []string{
	".cache", ".config", ".local", ".local/share", ".local/state", ".local/lib", "Library", "Library/Application Support",
	"Desktop", "Documents", "Downloads", "Pictures", ".var", ".var/app", "snap",
}

var shelves = []string{
	"/usr/local", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/share", "/usr/src", "/usr/libexec", "/usr/include",
	"/var/lib", "/var/log", "/var/cache", "/var/spool", "/var/tmp", "/var/run", "/var/mail", "/var/opt", "/run/user",
}

// below returns what follows dir in a path below it.
func below(dir, p string) (string, bool) {
	if dir == "" || dir == "/" {
		return "", false
	}
	return strings.CutPrefix(p, dir+"/")
}

func coversAny(dirs []string, p string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return spec.Covers(dir, p) })
}
