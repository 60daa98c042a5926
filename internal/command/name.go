package command

import "strings"

// shorterName takes one part of a version off a name: python3.11 is python3,
// and that is python. It returns "" if there is none.
func shorterName(name string) string {
	if n, ok := strings.CutSuffix(name, ".exe"); ok {
		return n
	}
	n := strings.TrimRight(name, "0123456789")
	if n == name {
		return ""
	}
	if len(n) > 1 && (n[len(n)-1] == '.' || n[len(n)-1] == '-') {
		n = n[:len(n)-1]
	}
	return n
}

// frontName is the name people use for a program that is installed behind it.
func frontName(name string) string {
	if strings.HasPrefix(name, "mkfs.") {
		return "mkfs"
	}
	switch name {
	case "npm-cli.js":
		return "npm"
	case "npx-cli.js":
		return "npx"
	case "pnpm.cjs", "pnpm.mjs":
		return "pnpm"
	case "yarn.js", "yarn.cjs":
		return "yarn"
	}
	return ""
}

// isByName tells the program that reads the name it is called by as its first
// argument.
func isByName(name string) bool { return name == "git" }

// manyInOne are programs that are something else for each name they are called
// by, so that being the same file as a denied program means nothing.
var manyInOne = []string{
	"busybox", "coreutils", "dropbearmulti", "kmod", "lvm", "mise", "rustup", "systemctl", "toybox", "volta-shim",
	"xtables-legacy-multi", "xtables-nft-multi",
}

func isManyInOne(path string) bool {
	name := baseName(path)
	for _, n := range manyInOne {
		if name == n {
			return true
		}
	}
	return strings.HasPrefix(name, "busybox")
}

// takesApplet tells the programs of many whose first argument may say which one
// they are.
func takesApplet(name string) bool {
	switch name {
	case "toybox", "coreutils", "lvm", "dropbearmulti", "xtables-legacy-multi", "xtables-nft-multi":
		return true
	}
	return strings.HasPrefix(name, "busybox")
}

// isLoader tells the dynamic loader, which runs the program it is given.
func isLoader(path string) bool {
	name := baseName(path)
	return name == "ld.so" || strings.Contains(name, ".so") && (strings.HasPrefix(name, "ld-") || strings.HasPrefix(name, "ld64."))
}
