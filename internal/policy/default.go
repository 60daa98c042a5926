package policy

import "slices"

// defaultPolicy is laid out by the compiler, so that a start without any policy
// file pays nothing for it. It has no patterns, and each entry costs one look
// at the file system at every start: a path is listed because a common tool
// does not work without it, or because it holds a secret inside such a path.
var defaultPolicy = Policy{
	Filesystem: Filesystem{
		AllowWrite: []string{"."},
		AllowRead: []string{
			"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
			"/etc", "/opt", "/nix", "/snap", "/home/linuxbrew", "/run/current-system",
			// Processor and memory layout: run times size themselves by it.
			"/sys/devices/system",
			// Where /etc/resolv.conf leads on many systems.
			"/run/systemd/resolve/stub-resolv.conf", "/run/systemd/resolve/resolv.conf",

			"~/.gitconfig", "~/.config/git", "~/.gitignore", "~/.gitignore_global",
			"~/.config/go",

			"~/bin", "~/.local/bin", "~/.local/lib", "~/.linuxbrew",
			"~/.nix-profile", "~/.local/state/nix",
			"~/.asdf", "~/.local/share/mise",
			"~/.nvm", "~/.fnm", "~/.local/share/fnm", "~/.volta", "~/.local/share/pnpm", "~/.bun", "~/.deno",
			"~/.pyenv", "~/.local/share/uv", "~/.local/share/pipx", "~/.local/pipx",
			"~/.conda", "~/miniconda3", "~/anaconda3", "~/miniforge3",
			"~/go", "~/.cargo", "~/.rustup", "~/.rbenv", "~/.gem", "~/.bundle", "~/.sdkman", "~/.jenv", "~/.ghcup",

			// Caches that can be used without being written.
			"~/.npm/_cacache", "~/.cache/node",
		},
		// Caches of tools that do not work without writing them. Each costs a
		// launch a twentieth of a millisecond where it exists.
		PrivateWrite: []string{
			"~/.cache/go-build",
			"~/.cargo/registry", "~/.cargo/git",
			"~/.cache/yarn", "~/.cache/pnpm",
			"~/.cache/uv",
			"~/.gradle", "~/.m2",
			"~/.cache/ccache", "~/.ccache", "~/.cache/sccache",
		},
		DenyRead: []string{
			"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-",
			"/etc/sudoers", "/etc/sudoers.d", "/etc/security/opasswd",
			"/etc/ssl/private", "/etc/pki/tls/private", "/etc/letsencrypt",
			"/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_ecdsa_key",
			"/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_dsa_key",
			"/etc/krb5.keytab", "/etc/wireguard", "/etc/openvpn", "/etc/ppp",
			"/etc/NetworkManager/system-connections",
			"/etc/docker", "/etc/kubernetes", "/etc/rancher",

			"~/.config/git/credentials", "~/.git-credentials",
			"~/.cargo/credentials", "~/.cargo/credentials.toml",
			"~/.m2/settings.xml", "~/.m2/settings-security.xml",
			"~/.gradle/gradle.properties",
			"~/.gem/credentials", "~/.bundle/config",
			"~/.local/share/uv/credentials",
		},
	},
}

// Default is the policy that holds where no file says anything: the project can
// be written, system directories and tool chains can be read, and the network
// is closed.
func Default() Policy {
	// By hand rather than by reflection: every start comes through here.
	p := defaultPolicy
	fs := &p.Filesystem
	deny := true
	fs.DefaultDenyRead = &deny
	for _, list := range []*[]string{&fs.AllowRead, &fs.DenyRead, &fs.AllowWrite, &fs.PrivateWrite} {
		*list = slices.Clone(*list)
	}
	return p
}
