package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestDefaultsRefuse(t *testing.T) {
	r := List{Reach: ReachArgv, Defaults: true}.Compile()
	for _, line := range []string{
		"shutdown -h now", "reboot", "/sbin/poweroff -f", "init 6", "systemctl --no-wall reboot", "systemctl -H host poweroff",
		"busybox reboot", "insmod x.ko", "modprobe x", "sysctl -w a=b", "sysctl kernel.panic=1", "sysctl -qp",
		"mkfs.ext4 -F -L root /dev/sda1", "sfdisk --delete /dev/sda 1", "parted -s /dev/sda mklabel gpt", "mkfs -t ext4 /dev/sda1", "mke2fs /dev/sda1", "wipefs -a /dev/sda", "dd if=x of=/dev/sda bs=1M",
		"lvm lvremove x", "rm -rf /", "rm -r -f /", "rm -rf --no-preserve-root /", "chmod -R 777 /", "chown -R a:b /",
		"xtables-nft-multi iptables -F", "unshare -r sh", "nsenter -t 1 sh", "crontab file", "at now",
		"docker run --privileged x", "docker --debug container run --privileged x", "docker run -v /:/host x",
		"docker run --volume=/:/host:ro x", "docker create --mount type=bind,source=/,target=/h x", "docker run --cap-add SYS_ADMIN x",
		"docker run -v /var/run/docker.sock:/var/run/docker.sock x", "podman run --privileged x", "docker system prune -af",
		"git push --force", "git push -f origin main", "git push origin main --force", "git push origin +main", "git push origin :main",
		"git push --delete origin x", "git -C x push --mirror",
		"npm publish", "cargo publish --no-verify", "twine upload dist/x", "python3 -m twine upload dist/x", "terraform destroy",
		"terraform -chdir=x destroy", "gh repo delete a/b", "kubectl delete ns prod", "kubectl -n prod delete pods --all",
	} {
		if v := r.Judge(run(line)); v.Allowed || v.Key != "command.useDefaults" || v.Reason == "" {
			t.Errorf("%q: got %v, want a refusal with a reason", line, v)
		}
	}
}

func TestDefaultsLeaveOrdinaryWorkAlone(t *testing.T) {
	r := List{Reach: ReachArgv, Defaults: true}.Compile()
	for _, line := range []string{
		"systemctl status x", "systemctl list-units", "sysctl -a", "sysctl kernel.panic", "lsmod", "fdisk -l", "fdisk -l /dev/sda", "fdisk disk.img", "mkfs.ext4 -F disk.img", "mkswap swap.img", "parted -l", "crontab -l",
		"dd if=/dev/zero of=/dev/null", "dd if=/dev/sda of=x", "dd if=x of=y", "rm -rf node_modules", "rm -rf /tmp/x", "chmod -R 755 build",
		"chown -R a:b .", "docker run -it --rm -v /home/x:/w image", "docker build .", "docker ps", "docker volume ls", "docker -v",
		"docker run --mount type=bind,source=/home,target=/h x", "docker run --cap-add NET_ADMIN x",
		"git push", "git push origin main", "git push --force-with-lease", "git push -u origin feature", "git push --tags", "git push --dry-run",
		"git fetch --force", "git push origin a:b", "npm publish --dry-run", "npm run publish", "npm install", "cargo publish --dry-run",
		"terraform plan", "gh pr create", "kubectl get ns", "kubectl delete pod x", "init", "iptables -L", "nft list ruleset", "ssh host",
		"sudo ls", "mount", "python3 -m venv x", "make install", "mvn test", "shutdown.sh", "ip link",
	} {
		if v := r.Judge(run(line)); !v.Allowed {
			t.Errorf("%q: got %v, want allowed", line, v)
		}
	}
}

func TestADefaultCanBeTakenBack(t *testing.T) {
	r := List{Reach: ReachArgv, Defaults: true, Allow: entries("git push --force", "mkfs.vfat /dev/*"), Deny: entries("npm", "crontab -l")}.Compile()
	for line, want := range map[string]bool{
		"git push origin x --force": true, "git push --mirror": false, "mkfs.vfat /dev/sdb1": true, "mkfs.ext4 /dev/sdb1": false,
		// What the built-in list allows is no answer to a person's own denial.
		"npm publish --dry-run": false, "crontab -l": false,
	} {
		if got := r.Judge(run(line)); got.Allowed != want {
			t.Errorf("%q: got %v, want allowed %v", line, got, want)
		}
	}
}

func TestDefaultsAreSortedForTheSearch(t *testing.T) {
	r := List{Reach: ReachArgv, Defaults: true}.Compile()
	for i := range defaults {
		d := &defaults[i]
		if i > 0 && defaults[i-1].all[0] > d.all[0] {
			t.Errorf("%q stands behind %q", d.all[0], defaults[i-1].all[0])
		}
		// A command that is the entry itself, with something for each star.
		line := strings.ReplaceAll(d.entry(), "*", "x")
		if v := r.Judge(run(line)); v.Allowed != d.allow {
			t.Errorf("%q: got %v, want allowed %v", line, v, d.allow)
		}
	}
}

func TestDocumentListsEveryDefaultWithItsReason(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(testenv.ModuleRoot(t), "docs", "commands.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for i, text := range strings.Split(cells[1], "`") {
			if i%2 == 1 {
				rows[text] = strings.TrimSpace(cells[2])
			}
		}
	}
	for _, d := range Defaults() {
		got, ok := rows[d.Text]
		switch {
		case !ok:
			t.Errorf("docs/commands.md does not list %q", d.Text)
		case got != d.Reason:
			t.Errorf("docs/commands.md: %q: got reason %q, want %q", d.Text, got, d.Reason)
		}
	}
}
