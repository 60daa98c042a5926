package command

import (
	"slices"
	"strings"
)

// Default is one entry of the built-in list.
type Default struct {
	Text string
	// Allow marks a harmless form of a denied command.
	Allow  bool
	Reason string
}

// Defaults returns the built-in list: what no agent should do by accident, to
// the machine or to what is shared with other people and cannot be taken back.
func Defaults() []Default {
	out := make([]Default, len(defaults))
	for i := range defaults {
		d := &defaults[i]
		out[i] = Default{d.entry(), d.allow, d.reason}
	}
	return out
}

// findDefaults returns the built-in rules about a program.
func findDefaults(name string) []rule {
	byProgram := func(ru rule, name string) int { return strings.Compare(ru.all[0], name) }
	from, ok := slices.BinarySearchFunc(defaults[:], name, byProgram)
	if !ok {
		return nil
	}
	to := from + 1
	for to < len(defaults) && defaults[to].all[0] == name {
		to++
	}
	return defaults[from:to]
}

const (
	stops      = "it stops the machine, or puts it to sleep"
	kernel     = "it changes the running kernel"
	disk       = "it destroys what is on a disk"
	wholeTree  = "it changes or removes the whole file system"
	boot       = "it changes how the machine starts"
	firewall   = "it takes the machine's firewall down"
	leaves     = "it starts a program in another root directory or namespace"
	outside    = "it has another service start a program later, or outside the sandbox"
	openBox    = "it gives a container the whole machine"
	prunes     = "it removes what other work on this machine uses"
	history    = "it rewrites or deletes what others have fetched"
	publishes  = "it publishes a version, which cannot be taken back"
	destroys   = "it destroys something shared that cannot be brought back"
	onlyReads  = "it changes nothing"
	onlyDryRun = "it publishes nothing"
)

// defaults is sorted by program. The compiler lays it out, so that it costs
// nothing at start.
var defaults = [...]rule{
	{all: []string{"at"}, reason: outside},
	{all: []string{"aws", "s3", "rb"}, reason: destroys},
	{all: []string{"blkdiscard", "/dev/*"}, reason: disk},
	{all: []string{"bootctl", "install"}, reason: boot},
	{all: []string{"bootctl", "remove"}, reason: boot},
	{all: []string{"bun", "publish"}, reason: publishes},
	{all: []string{"bun", "publish", "--dry-run"}, allow: true, reason: onlyDryRun},
	{all: []string{"cargo", "publish"}, reason: publishes},
	{all: []string{"cargo", "publish", "--dry-run"}, allow: true, reason: onlyDryRun},
	{all: []string{"cfdisk"}, reason: disk},
	{all: []string{"cgdisk"}, reason: disk},
	{all: []string{"chmod", "-R", "*", "/"}, reason: wholeTree},
	{all: []string{"chmod", "--recursive", "*", "/"}, reason: wholeTree},
	{all: []string{"chown", "-R", "*", "/"}, reason: wholeTree},
	{all: []string{"chown", "--recursive", "*", "/"}, reason: wholeTree},
	{all: []string{"chroot"}, reason: leaves},
	{all: []string{"crontab"}, reason: outside},
	{all: []string{"crontab", "-l"}, allow: true, reason: onlyReads},
	{all: []string{"cryptsetup", "luksFormat"}, reason: disk},
	{all: []string{"cryptsetup", "erase"}, reason: disk},
	{all: []string{"cryptsetup", "luksErase"}, reason: disk},
	{all: []string{"csrutil", "disable"}, reason: boot},
	{all: []string{"dd", "of=/dev/sd*"}, reason: disk},
	{all: []string{"dd", "of=/dev/hd*"}, reason: disk},
	{all: []string{"dd", "of=/dev/vd*"}, reason: disk},
	{all: []string{"dd", "of=/dev/xvd*"}, reason: disk},
	{all: []string{"dd", "of=/dev/nvme*"}, reason: disk},
	{all: []string{"dd", "of=/dev/mmcblk*"}, reason: disk},
	{all: []string{"dd", "of=/dev/mapper/*"}, reason: disk},
	{all: []string{"dd", "of=/dev/dm-*"}, reason: disk},
	{all: []string{"dd", "of=/dev/md*"}, reason: disk},
	{all: []string{"dd", "of=/dev/disk*"}, reason: disk},
	{all: []string{"dd", "of=/dev/rdisk*"}, reason: disk},
	{all: []string{"diskutil", "eraseDisk"}, reason: disk},
	{all: []string{"diskutil", "eraseVolume"}, reason: disk},
	{all: []string{"diskutil", "partitionDisk"}, reason: disk},
	{all: []string{"diskutil", "secureErase"}, reason: disk},
	{all: []string{"diskutil", "zeroDisk"}, reason: disk},
	{all: []string{"docker", "--privileged"}, reason: openBox},
	{all: []string{"docker", "--pid=host"}, reason: openBox},
	{all: []string{"docker", "--cap-add=ALL"}, reason: openBox},
	{all: []string{"docker", "--cap-add=*SYS_ADMIN"}, reason: openBox},
	{all: []string{"docker", "-v=/:*"}, reason: openBox},
	{all: []string{"docker", "--volume=/:*"}, reason: openBox},
	{all: []string{"docker", "--mount=*source=/,*"}, reason: openBox},
	{all: []string{"docker", "--mount=*src=/,*"}, reason: openBox},
	{all: []string{"docker", "-v=/var/run/docker.sock:*"}, reason: openBox},
	{all: []string{"docker", "-v=/run/docker.sock:*"}, reason: openBox},
	{all: []string{"docker", "system", "prune"}, reason: prunes},
	{all: []string{"docker", "volume", "prune"}, reason: prunes},
	{all: []string{"efibootmgr"}, reason: boot},
	{all: []string{"fdisk", "/dev/*"}, reason: disk},
	{all: []string{"fdisk", "-l"}, allow: true, reason: onlyReads},
	{all: []string{"flashrom"}, reason: boot},
	{all: []string{"fwupdmgr", "install"}, reason: boot},
	{all: []string{"fwupdmgr", "update"}, reason: boot},
	{all: []string{"gcloud", "projects", "delete"}, reason: destroys},
	{all: []string{"gdisk", "/dev/*"}, reason: disk},
	{all: []string{"gem", "push"}, reason: publishes},
	{all: []string{"gh", "repo", "delete"}, reason: destroys},
	{all: []string{"gh", "release", "delete"}, reason: destroys},
	{all: []string{"git", "push", "--force"}, reason: history},
	{all: []string{"git", "push", "-f"}, reason: history},
	{all: []string{"git", "push", "--mirror"}, reason: history},
	{all: []string{"git", "push", "--prune"}, reason: history},
	{all: []string{"git", "push", "--delete"}, reason: history},
	{all: []string{"git", "push", "-d"}, reason: history},
	{all: []string{"git", "push", "*", "+*"}, reason: history},
	{all: []string{"git", "push", "*", ":*"}, reason: history},
	{all: []string{"glab", "repo", "delete"}, reason: destroys},
	{all: []string{"grub-install"}, reason: boot},
	{all: []string{"grub2-install"}, reason: boot},
	{all: []string{"halt"}, reason: stops},
	{all: []string{"hdparm", "--security-erase"}, reason: disk},
	{all: []string{"helm", "uninstall"}, reason: destroys},
	{all: []string{"init", "0"}, reason: stops},
	{all: []string{"init", "6"}, reason: stops},
	{all: []string{"insmod"}, reason: kernel},
	{all: []string{"ip6tables", "-F"}, reason: firewall},
	{all: []string{"ip6tables", "--flush"}, reason: firewall},
	{all: []string{"iptables", "-F"}, reason: firewall},
	{all: []string{"iptables", "--flush"}, reason: firewall},
	{all: []string{"kexec"}, reason: kernel},
	{all: []string{"kmod", "insert"}, reason: kernel},
	{all: []string{"kmod", "remove"}, reason: kernel},
	{all: []string{"kubectl", "delete", "namespace"}, reason: destroys},
	{all: []string{"kubectl", "delete", "namespaces"}, reason: destroys},
	{all: []string{"kubectl", "delete", "ns"}, reason: destroys},
	{all: []string{"kubectl", "delete", "--all"}, reason: destroys},
	{all: []string{"kubectl", "drain"}, reason: destroys},
	{all: []string{"loginctl", "poweroff"}, reason: stops},
	{all: []string{"loginctl", "reboot"}, reason: stops},
	{all: []string{"loginctl", "suspend"}, reason: stops},
	{all: []string{"lvremove"}, reason: disk},
	{all: []string{"mdadm", "--zero-superblock"}, reason: disk},
	{all: []string{"mkdosfs", "/dev/*"}, reason: disk},
	{all: []string{"mke2fs", "/dev/*"}, reason: disk},
	{all: []string{"mkfs", "/dev/*"}, reason: disk},
	{all: []string{"mkntfs", "/dev/*"}, reason: disk},
	{all: []string{"mkswap", "/dev/*"}, reason: disk},
	{all: []string{"modprobe"}, reason: kernel},
	{all: []string{"mvn", "deploy"}, reason: publishes},
	{all: []string{"nerdctl", "--privileged"}, reason: openBox},
	{all: []string{"nerdctl", "-v=/:*"}, reason: openBox},
	{all: []string{"nerdctl", "--volume=/:*"}, reason: openBox},
	{all: []string{"nft", "flush", "ruleset"}, reason: firewall},
	{all: []string{"npm", "publish"}, reason: publishes},
	{all: []string{"npm", "publish", "--dry-run"}, allow: true, reason: onlyDryRun},
	{all: []string{"npm", "unpublish"}, reason: destroys},
	{all: []string{"nsenter"}, reason: leaves},
	{all: []string{"nvme", "format"}, reason: disk},
	{all: []string{"nvme", "sanitize"}, reason: disk},
	{all: []string{"nvram", "-c"}, reason: boot},
	{all: []string{"parted", "/dev/*"}, reason: disk},
	{all: []string{"parted", "-l"}, allow: true, reason: onlyReads},
	{all: []string{"pivot_root"}, reason: leaves},
	{all: []string{"pmset", "sleepnow"}, reason: stops},
	{all: []string{"pnpm", "publish"}, reason: publishes},
	{all: []string{"pnpm", "publish", "--dry-run"}, allow: true, reason: onlyDryRun},
	{all: []string{"podman", "--privileged"}, reason: openBox},
	{all: []string{"podman", "--pid=host"}, reason: openBox},
	{all: []string{"podman", "--cap-add=ALL"}, reason: openBox},
	{all: []string{"podman", "--cap-add=*SYS_ADMIN"}, reason: openBox},
	{all: []string{"podman", "-v=/:*"}, reason: openBox},
	{all: []string{"podman", "--volume=/:*"}, reason: openBox},
	{all: []string{"podman", "system", "prune"}, reason: prunes},
	{all: []string{"podman", "system", "reset"}, reason: prunes},
	{all: []string{"podman", "volume", "prune"}, reason: prunes},
	{all: []string{"poetry", "publish"}, reason: publishes},
	{all: []string{"poetry", "publish", "--dry-run"}, allow: true, reason: onlyDryRun},
	{all: []string{"poweroff"}, reason: stops},
	{all: []string{"pulumi", "destroy"}, reason: destroys},
	{all: []string{"pvremove"}, reason: disk},
	{all: []string{"reboot"}, reason: stops},
	{all: []string{"rm", "--no-preserve-root"}, reason: wholeTree},
	{all: []string{"rm", "-rf", "/"}, reason: wholeTree},
	{all: []string{"rm", "-Rf", "/"}, reason: wholeTree},
	{all: []string{"rmmod"}, reason: kernel},
	{all: []string{"rtcwake"}, reason: stops},
	{all: []string{"run0"}, reason: outside},
	{all: []string{"sfdisk", "/dev/*"}, reason: disk},
	{all: []string{"sgdisk", "/dev/*"}, reason: disk},
	{all: []string{"shred", "/dev/*"}, reason: disk},
	{all: []string{"shutdown"}, reason: stops},
	{all: []string{"switch_root"}, reason: leaves},
	{all: []string{"sysctl", "-w"}, reason: kernel},
	{all: []string{"sysctl", "--write"}, reason: kernel},
	{all: []string{"sysctl", "-p"}, reason: kernel},
	{all: []string{"sysctl", "--load"}, reason: kernel},
	{all: []string{"sysctl", "--system"}, reason: kernel},
	{all: []string{"sysctl", "*="}, reason: kernel},
	{all: []string{"systemctl", "poweroff"}, reason: stops},
	{all: []string{"systemctl", "reboot"}, reason: stops},
	{all: []string{"systemctl", "soft-reboot"}, reason: stops},
	{all: []string{"systemctl", "halt"}, reason: stops},
	{all: []string{"systemctl", "kexec"}, reason: stops},
	{all: []string{"systemctl", "suspend"}, reason: stops},
	{all: []string{"systemctl", "hibernate"}, reason: stops},
	{all: []string{"systemctl", "hybrid-sleep"}, reason: stops},
	{all: []string{"systemctl", "suspend-then-hibernate"}, reason: stops},
	{all: []string{"systemctl", "rescue"}, reason: stops},
	{all: []string{"systemctl", "emergency"}, reason: stops},
	{all: []string{"systemd-run"}, reason: outside},
	{all: []string{"telinit"}, reason: stops},
	{all: []string{"terraform", "destroy"}, reason: destroys},
	{all: []string{"tofu", "destroy"}, reason: destroys},
	{all: []string{"twine", "upload"}, reason: publishes},
	{all: []string{"ufw", "disable"}, reason: firewall},
	{all: []string{"ufw", "reset"}, reason: firewall},
	{all: []string{"unshare"}, reason: leaves},
	{all: []string{"uv", "publish"}, reason: publishes},
	{all: []string{"vgremove"}, reason: disk},
	{all: []string{"wipefs", "/dev/*"}, reason: disk},
	{all: []string{"yarn", "publish"}, reason: publishes},
	{all: []string{"yarn", "npm", "publish"}, reason: publishes},
	{all: []string{"zfs", "destroy"}, reason: disk},
	{all: []string{"zpool", "destroy"}, reason: disk},
}
