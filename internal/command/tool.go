package command

import (
	"slices"
	"strings"
)

// tool is what is known of a program that takes options before its first word.
// An option in neither list is read both ways, so a table that lacks one finds
// too much rather than too little.
type tool struct {
	names  []string
	flags  []string // options without a value
	valued []string // options that take the next word
	// toolchain allows a first word such as +nightly, before the others.
	toolchain bool
	// helpers means that NAME-x is a part of the program: git-push.
	helpers bool
	// aliases means that -c alias.x=y makes x mean y.
	aliases bool
}

var tools = [...]tool{
	{
		names: []string{"git"}, helpers: true, aliases: true,
		flags: []string{
			"-p", "--paginate", "-P", "--no-pager", "--bare", "--no-replace-objects", "--no-lazy-fetch", "--no-optional-locks",
			"--no-advice", "--literal-pathspecs", "--glob-pathspecs", "--noglob-pathspecs", "--icase-pathspecs",
		},
		valued: []string{"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env", "--attr-source"},
	},
	{
		names: []string{"docker"}, helpers: true,
		flags:  []string{"-D", "--debug", "--tls", "--tlsverify"},
		valued: []string{"--config", "-c", "--context", "-H", "--host", "-l", "--log-level", "--tlscacert", "--tlscert", "--tlskey"},
	},
	{
		names: []string{"podman"}, helpers: true,
		flags: []string{"-r", "--remote", "--syslog"},
		valued: []string{
			"-c", "--connection", "--url", "--identity", "--log-level", "--root", "--runroot", "--runtime", "--storage-driver",
			"--storage-opt", "--tmpdir", "--cgroup-manager", "--module",
		},
	},
	{
		names: []string{"kubectl", "oc"}, helpers: true,
		flags: []string{"--insecure-skip-tls-verify", "--match-server-version", "--warnings-as-errors", "--disable-compression"},
		valued: []string{
			"-n", "--namespace", "--context", "--cluster", "--user", "--kubeconfig", "-s", "--server", "--token", "--as", "--as-group",
			"--as-uid", "--cache-dir", "--certificate-authority", "--client-certificate", "--client-key", "--request-timeout",
			"--tls-server-name", "--username", "--password", "-v", "--v", "--vmodule",
		},
	},
	{
		names:  []string{"helm"},
		flags:  []string{"--debug", "--kube-insecure-skip-tls-verify"},
		valued: []string{"-n", "--namespace", "--kube-context", "--kubeconfig", "--kube-apiserver", "--kube-token", "--registry-config", "--repository-cache", "--repository-config"},
	},
	{
		names:  []string{"npm", "npx"},
		flags:  []string{"-g", "--global", "-s", "--silent", "-q", "--quiet", "-d", "-dd", "-ddd", "--verbose", "-y", "--yes", "--json", "--workspaces", "--ignore-scripts", "--dry-run", "--offline"},
		valued: []string{"--prefix", "-C", "--registry", "-w", "--workspace", "--userconfig", "--globalconfig", "--cache", "--loglevel", "--tag", "--access", "--otp", "--scope"},
	},
	{
		names:  []string{"pnpm"},
		flags:  []string{"-r", "--recursive", "-w", "--workspace-root", "-s", "--silent"},
		valued: []string{"-C", "--dir", "-F", "--filter", "--filter-prod", "--loglevel", "--reporter"},
	},
	{
		names:  []string{"yarn", "bun"},
		flags:  []string{"-s", "--silent", "--verbose", "--offline", "--frozen-lockfile"},
		valued: []string{"--cwd", "--registry", "--cache-folder", "--modules-folder"},
	},
	{
		names: []string{"cargo"}, toolchain: true, helpers: true,
		flags:  []string{"-q", "--quiet", "-v", "-vv", "--verbose", "--offline", "--locked", "--frozen", "--list"},
		valued: []string{"-C", "-Z", "--config", "--color"},
	},
	{
		names: []string{"rustup"}, toolchain: true,
		flags: []string{"-q", "--quiet", "-v", "--verbose"},
	},
	{
		names:  []string{"go"},
		valued: []string{"-C"},
	},
	{
		names: []string{"gh"}, helpers: true,
		valued: []string{"-R", "--repo"},
	},
	{
		names: []string{"systemctl", "loginctl"},
		flags: []string{
			"--user", "--system", "--global", "--no-pager", "-q", "--quiet", "--no-block", "--no-wall", "--no-legend", "--no-ask-password",
			"-f", "--force", "-i", "--now", "-a", "--all", "-l", "--full", "--runtime", "--failed", "--plain", "--no-reload", "--wait",
			"--dry-run", "-r", "--recursive", "--value", "--reverse", "--after", "--before",
		},
		valued: []string{
			"-t", "--type", "--state", "-p", "--property", "-P", "-n", "--lines", "-o", "--output", "-H", "--host", "-M", "--machine",
			"--root", "--image", "--job-mode", "-s", "--signal", "--kill-whom", "--what", "--message", "--timestamp",
		},
	},
	{
		names:  []string{"apt", "apt-get", "aptitude"},
		flags:  []string{"-y", "--yes", "--assume-yes", "-q", "-qq", "--quiet", "-s", "--simulate", "--dry-run", "-d", "--download-only", "-f", "--fix-broken", "-V", "--no-install-recommends"},
		valued: []string{"-o", "--option", "-c", "--config-file", "-t", "--target-release", "--default-release", "-a", "--host-architecture"},
	},
	{
		names:  []string{"dnf", "yum", "microdnf"},
		flags:  []string{"-y", "--assumeyes", "-q", "--quiet", "-v", "--verbose", "-C", "--cacheonly", "-b", "--best", "--refresh", "--nogpgcheck"},
		valued: []string{"-c", "--config", "-x", "--exclude", "--enablerepo", "--disablerepo", "--repo", "--repoid", "--installroot", "--releasever", "--setopt"},
	},
	{
		names:  []string{"apk"},
		flags:  []string{"-q", "--quiet", "-v", "--verbose", "-f", "--force", "-U", "--update-cache", "--no-cache", "--allow-untrusted"},
		valued: []string{"-p", "--root", "-X", "--repository", "--keys-dir", "--repositories-file", "--wait", "--arch", "--cache-dir", "--timeout"},
	},
	{
		names:  []string{"pip", "pipx"},
		flags:  []string{"-q", "--quiet", "-v", "--verbose", "--isolated", "--no-input", "--no-cache-dir", "--require-virtualenv"},
		valued: []string{"--log", "--proxy", "--retries", "--timeout", "--python", "--cert", "--client-cert", "--cache-dir", "--trusted-host", "--exists-action"},
	},
	{
		names:  []string{"uv"},
		flags:  []string{"-q", "--quiet", "-v", "--verbose", "--offline", "--no-cache", "-n", "--no-config", "--no-progress"},
		valued: []string{"--directory", "--project", "--config-file", "--cache-dir", "--color"},
	},
	{
		names:  []string{"poetry"},
		flags:  []string{"-q", "--quiet", "-v", "-vv", "-vvv", "--verbose", "-n", "--no-interaction", "--no-plugins", "--no-cache"},
		valued: []string{"-C", "--directory", "-P", "--project"},
	},
	{
		names:  []string{"aws"},
		flags:  []string{"--debug", "--no-verify-ssl", "--no-paginate", "--no-sign-request", "--no-cli-pager", "--no-cli-auto-prompt", "--cli-auto-prompt"},
		valued: []string{"--profile", "--region", "--output", "--endpoint-url", "--query", "--ca-bundle", "--color", "--cli-read-timeout", "--cli-connect-timeout", "--cli-binary-format"},
	},
	{
		names:  []string{"gcloud"},
		flags:  []string{"-q", "--quiet", "--log-http"},
		valued: []string{"--project", "--account", "--configuration", "--format", "--verbosity", "--impersonate-service-account", "--billing-project", "--flags-file", "--access-token-file"},
	},
	{
		names:  []string{"make", "gmake"},
		flags:  []string{"-B", "--always-make", "-e", "-i", "--ignore-errors", "-k", "--keep-going", "-n", "--dry-run", "-s", "--silent", "--quiet", "-w", "--no-print-directory"},
		valued: []string{"-C", "--directory", "-f", "--file", "--makefile", "-I", "--include-dir", "-o", "-W"},
	},
	{
		names:  []string{"hg"},
		flags:  []string{"-q", "--quiet", "-v", "--verbose", "-y", "--noninteractive", "--debug"},
		valued: []string{"-R", "--repository", "--cwd", "--config", "--encoding", "--color", "--pager"},
	},
	{
		names:  []string{"jj"},
		flags:  []string{"--ignore-working-copy", "--no-pager", "--quiet", "--debug"},
		valued: []string{"-R", "--repository", "--at-operation", "--at-op", "--color", "--config", "--config-file"},
	},
}

// findTool returns nil for a program that nothing is known of.
func findTool(name string) *tool {
	for i := range tools {
		if slices.Contains(tools[i].names, name) {
			return &tools[i]
		}
	}
	return nil
}

// takes reports how an option before the first word can be read: as one that
// stands alone, as one that takes the next word, or as either.
func (t *tool) takes(option string) (flag, value bool) {
	switch {
	case strings.Contains(option, "="):
		return true, false
	case t == nil:
		return true, true
	case slices.Contains(t.valued, option):
		return false, true
	case slices.Contains(t.flags, option):
		return true, false
	}
	return true, true
}

// afterOptions passes over the options that the program is known to have.
func (t *tool) afterOptions(args []string) []string {
	if t == nil {
		return args
	}
	if t.toolchain && len(args) > 0 && strings.HasPrefix(args[0], "+") {
		args = args[1:]
	}
	for len(args) > 0 && isOption(args[0]) {
		flag, value := t.takes(args[0])
		switch {
		case flag && value, value && len(args) < 2:
			return args
		case value:
			args = args[2:]
		default:
			args = args[1:]
		}
	}
	return args
}
