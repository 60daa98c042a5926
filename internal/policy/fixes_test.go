package policy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// fixes are policies with a mistake, the message, and the policy that the message
// leads to.
var fixes = []struct{ wrong, want, right string }{
	{`{"ssh": {"allowedHosts": ["@npm"]}}`, `groups are for network.allowedDomains`, `{"network": {"allowedDomains": ["@npm"]}}`},
	{`{"devices": {"allow": ["/etc/passwd"]}}`, `a device node is a path below /dev`, `{"devices": {"allow": ["/dev/kvm"]}}`},
	{`{"filesystem": {"allowRead": [""]}}`, `empty string`, `{"filesystem": {"allowRead": ["/a"]}}`},
	{`{"filesystem": {"allowRead": ["\u0000"]}}`, `NUL byte in string`, `{"filesystem": {"allowRead": ["/a"]}}`},
	{`{"filesystem": {"allowRead": ["a\nb"]}}`, `newline in string`, `{"filesystem": {"allowRead": ["a", "b"]}}`},
	{`{"filesystem": {"allowRead": ["a\u001b"]}}`, `control character U+001B in string`, `{"filesystem": {"allowRead": ["a"]}}`},
	{`{"filesystem": {"allowRead": ["~bob/x"]}}`, `only ~/ is known, the home directory of whoever runs the command`, `{"filesystem": {"allowRead": ["~/x"]}}`},
	{
		`{"filesystem": {"allowRead": ["$HOME/x"]}}`,
		`variables are not expanded in paths; write ~/ for the home directory, or ./ before a name that starts with $`,
		`{"filesystem": {"allowRead": ["~/x", "./$HOME/x"]}}`,
	},
	{
		`{"filesystem": {"denyRead": ["a[b"]}}`,
		`bad pattern: unbalanced [ ] or { }, or a \ at the end; write \[ for a bracket in a name`,
		`{"filesystem": {"denyRead": ["a\\[b"]}}`,
	},
	{
		`{"workspace": {"rules": [{"pattern": "~/x", "permission": "none"}]}}`,
		`path permissions are about the project: write a path relative to it; others belong in filesystem`,
		`{"workspace": {"rules": [{"pattern": "!x", "permission": "none"}]}}`,
	},
	{
		`{"workspace": {"rules": [{"pattern": "../x", "permission": "none"}]}}`,
		`path permissions are about the project, and no path in it has ".." for a name; write the path without it`,
		`{"workspace": {"rules": [{"pattern": "..x", "permission": "none"}]}}`,
	},
	{
		`{"workspace": {"rules": [{"pattern": "!", "permission": "none"}]}}`,
		`this is about no path: ! stands for what the rest does not match, and the rest matches all; write what is left out after it, as in !src`,
		`{"workspace": {"rules": [{"pattern": "!src", "permission": "none"}]}}`,
	},
	{
		`{"workspace": {"rules": [{"pattern": "!./**", "permission": "none"}]}}`,
		`this is about no path: ! stands for what the rest does not match, and the rest matches all; write what is left out after it, as in !src`,
		`{"workspace": {"rules": [{"pattern": "!**/x", "permission": "none"}]}}`,
	},
	{`{"command": {"deny": ["g* push"]}}`, `a program is named in full, one in each entry; * is for arguments: git push *`, `{"command": {"deny": ["git push *", "gh push"]}}`},
	{
		`{"command": {"deny": ["git push | sh"]}}`,
		`an entry is about one program and its words; write one entry for each command: git push`,
		`{"command": {"deny": ["git push", "sh", "curl http://x/?a=1&b=2"]}}`,
	},
	{`{"command": {"deny": ["git commit -m \"x\""]}}`, `an entry is plain words, and a quote or backslash is taken as itself; leave it away`, `{"command": {"deny": ["git commit -m x"]}}`},
	{`{"ssh": {"deniedCommands": ["rm; ls"]}}`, `write one entry for each command`, `{"ssh": {"deniedCommands": ["rm", "!shutdown now"]}}`},
	{`{"env": {"set": {"": "x"}}}`, `empty string`, `{"env": {"set": {"A": "x"}}}`},
	{`{"env": {"allow": ["A-B"]}}`, `bad variable name: '-' is not allowed there`, `{"env": {"allow": ["A_B"]}}`},
	{
		`{"network": {"upstreamProxy": "proxy:3128"}}`,
		`a proxy is written as http://host:port, https://host:port or socks5://host:port`,
		`{"network": {"upstreamProxy": "http://proxy:3128"}}`,
	},
	{`{"network": {"allowedDomains": ["@nmp"]}}`, `unknown group; did you mean "@npm"?`, `{"network": {"allowedDomains": ["@npm"]}}`},
	{`{"network": {"allowedDomains": ["@qwertyuiop"]}}`, `unknown group; known are @npm, @pip`, `{"network": {"allowedDomains": ["@pip"]}}`},
	{`{"network": {"allowedDomains": ["https://a.com"]}}`, `a host is written without a scheme`, `{"network": {"allowedDomains": ["a.com"]}}`},
	{
		`{"network": {"allowedDomains": ["10.0.0.0/8"]}}`,
		`a host is written without a path; ranges of addresses belong in network.allowedCIDRs, paths in network.rules`,
		`{"network": {"allowedCIDRs": ["10.0.0.0/8"], "rules": [{"host": "a.com", "paths": ["/x"], "action": "allow"}]}}`,
	},
	{`{"network": {"allowedDomains": ["a .com"]}}`, `space in host`, `{"network": {"allowedDomains": ["a.com"]}}`},
	{`{"network": {"allowedDomains": ["a*.com"]}}`, `"*" is only allowed alone, or as the whole first label: *.example.com`, `{"network": {"allowedDomains": ["*.a.com", "*"]}}`},
	{
		`{"network": {"allowedDomains": ["a.com:8080"]}}`,
		`a host is written without a port; ports belong in network.rules`,
		`{"network": {"rules": [{"host": "a.com", "ports": ["8080"], "action": "allow"}]}}`,
	},
	{`{"network": {"allowedDomains": ["u@a.com"]}}`, `a host is written without a user`, `{"network": {"allowedDomains": ["a.com"]}}`},
	{`{"network": {"allowedDomains": ["` + strings.Repeat("a.", 130) + `b"]}}`, `host is longer than 253 characters`, `{"network": {"allowedDomains": ["*.b"]}}`},
	{`{"network": {"allowedDomains": ["127.1"]}}`, `neither a name nor a full address such as 192.0.2.1`, `{"network": {"allowedDomains": ["192.0.2.1"]}}`},
	{`{"network": {"allowedDomains": ["a..com"]}}`, `empty label in host: a dot too many`, `{"network": {"allowedDomains": ["a.com"]}}`},
	{`{"network": {"allowedDomains": ["` + strings.Repeat("a", 64) + `.com"]}}`, `label in host is longer than 63 characters`, `{"network": {"allowedDomains": ["*.com"]}}`},
	{
		`{"network": {"allowedDomains": ["bücher.de"]}}`,
		`hosts are matched in their ASCII form; write the xn-- form of the name`,
		`{"network": {"allowedDomains": ["xn--bcher-kva.de"]}}`,
	},
	{`{"network": {"allowedDomains": ["a!b.com"]}}`, `'!' is not allowed in a host`, `{"network": {"allowedDomains": ["ab.com"]}}`},
	{
		`{"network": {"allowLocalOutboundPorts": ["0"]}}`,
		`want a port from 1 to 65535, a range such as "8000-8100", or "*"`,
		`{"network": {"allowLocalOutboundPorts": ["1", "8000-8100", "*"]}}`,
	},
	{
		`{"network": {"allowedCIDRs": ["local"]}}`,
		`want a range of addresses such as 10.0.0.0/8 or fd00::/8`,
		`{"network": {"allowedCIDRs": ["10.0.0.0/8", "fd00::/8"]}}`,
	},
	{`{"network": {"allowedCIDRs": ["::ffff:10.0.0.0/104"]}}`, `write an IPv4 range in its IPv4 form`, `{"network": {"allowedCIDRs": ["10.0.0.0/8"]}}`},
	{`{"network": {"allowedCIDRs": ["10.0.0.1/8"]}}`, `address has bits beyond the range; write 10.0.0.0/8`, `{"network": {"allowedCIDRs": ["10.0.0.0/8"]}}`},
	{
		`{"network": {"inject": [{"hosts": ["a.com"]}]}}`,
		`want exactly one of fromEnv, fromFile and fromCommand`,
		`{"network": {"inject": [{"hosts": ["a.com"], "bearer": true, "fromEnv": "A"}]}}`,
	},
	{
		`{"network": {"inject": [{"hosts": [], "fromEnv": "A"}]}}`,
		`hosts is empty`,
		`{"network": {"inject": [{"hosts": ["a.com"], "bearer": true, "fromEnv": "A"}]}}`,
	},
	{
		`{"network": {"inject": [{"hosts": ["a.com"], "fromFile": "/x", "optional": true}]}}`,
		`optional goes with fromEnv`,
		`{"network": {"inject": [{"hosts": ["a.com"], "bearer": true, "fromEnv": "A", "optional": true}]}}`,
	},
	{
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "paths": ["**"]}]}}`,
		`the pattern of a path begins with a slash; write "/**" for every path, or leave paths out`,
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "paths": ["/**"]}]}}`,
	},
	{
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "paths": ["*"]}]}}`,
		`write "/**" for every path, or leave paths out`,
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "methods": ["GET"]}]}}`,
	},
	{
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "paths": ["admin/**"]}]}}`,
		`the pattern of a path begins with a slash; write "/admin/**"`,
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "paths": ["/admin/**"]}]}}`,
	},
	{
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "paths": ["/a?b"]}]}}`,
		`paths are matched without the query; write "/a"`,
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "paths": ["/a"]}]}}`,
	},
	{
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "paths": ["/a#b"]}]}}`,
		`paths are matched without the query; write "/a"`,
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "paths": ["/a"]}]}}`,
	},
	{
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "paths": ["/%zz"]}]}}`,
		`a % stands before two hexadecimal digits; write %25 for a percent sign`,
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "paths": ["/%25zz"]}]}}`,
	},
	{
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "methods": ["*"]}]}}`,
		`leave methods out to mean every method`,
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "ports": ["*"]}]}}`,
	},
	{
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "methods": ["G ET"]}]}}`,
		`a method is one word, such as "GET"`,
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "methods": ["GET"]}]}}`,
	},
	{
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "schemes": ["ssh"], "methods": ["GET"]}]}}`,
		`ssh has no methods; remove it, or add "https" to schemes`,
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "schemes": ["ssh", "https"], "methods": ["GET"]}]}}`,
	},
	{
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "schemes": ["ssh"], "paths": ["/a"]}]}}`,
		`ssh has no paths; remove it, or add "https" to schemes`,
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "schemes": ["ssh"]}]}}`,
	},
	{
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "schemes": ["ssh"], "inspect": true}]}}`,
		`ssh has no TLS that could be opened; remove it, or add "https" to schemes`,
		`{"network": {"rules": [{"host": "a.com", "action": "allow", "schemes": ["https", "ssh"], "inspect": true}]}}`,
	},
	{
		`{"network": {"allowedDomains": ["xn--a.test"]}}`,
		`a label that begins with xn-- stands for a name in Unicode, and this one stands for none; copy the name from where it is used`,
		`{"network": {"allowedDomains": ["xn--bcher-kva.test"]}}`,
	},
	{
		`{"network": {"allowedDomains": ["*.XN--.test"]}}`,
		`a label that begins with xn-- stands for a name`,
		`{"network": {"allowedDomains": ["*.XN--bcher-kva.test"]}}`,
	},
	{
		`{"network": {"allowedDomains": ["a.0x"]}}`,
		`neither a name nor a full address such as 192.0.2.1`,
		`{"network": {"allowedDomains": ["a.0xg"]}}`,
	},
	{
		`{"network": {"upstreamProxy": "ftp://u:p@proxy"}}`,
		`a proxy is reached by http, https or socks5: write http://host:port, https://host:port or socks5://host:port`,
		`{"network": {"upstreamProxy": "socks5://u:p@proxy"}}`,
	},
	{
		`{"network": {"upstreamProxy": "http://a%zz"}}`,
		`a proxy is written as http://host:port`,
		`{"network": {"upstreamProxy": "http://[2001:db8::1]"}}`,
	},
	{
		`{"network": {"upstreamProxy": "http://:80"}}`,
		`a proxy is written as http://host:port`,
		`{"network": {"upstreamProxy": "http://proxy:80"}}`,
	},
	{
		`{"network": {"upstreamProxy": "http://u:a/b@proxy"}}`,
		`the user or the password of the proxy has a character that must be written with a percent sign, such as %40 for @`,
		`{"network": {"upstreamProxy": "http://u:a%2fb@proxy"}}`,
	},
	{
		`{"network": {"upstreamProxy": "http://proxy:99999"}}`,
		`the port of a proxy is a number from 1 to 65535, such as 3128`,
		`{"network": {"upstreamProxy": "http://proxy:3128"}}`,
	},
	{
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "bearer": true, "placeholder": "LD_PRELOAD"}]}}`,
		`every command goes by this variable; name the one that holds the credential, such as API_TOKEN`,
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "bearer": true, "placeholder": "API_TOKEN"}]}}`,
	},
	{
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "bearer": true, "placeholder": "PATH"}]}}`,
		`every command goes by this variable`,
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "bearer": true, "placeholder": "XPATH"}]}}`,
	},
	{
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "placeholder": "A"}]}}`,
		`want exactly one of bearer, basic, header and query`,
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "query": "key"}]}}`,
	},
	{
		`{"network": {"inject": [{"hosts": ["*"], "fromEnv": "A", "bearer": true}]}}`,
		`"*" would send the credential to every host; name the hosts that need it`,
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "bearer": true}]}}`,
	},
	{
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "basic": "a:b"}]}}`,
		`the user of basic authentication cannot have a colon`,
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "basic": "a"}]}}`,
	},
	{
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "bearer": true, "format": "{}"}]}}`,
		`format is for header`,
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "header": "X", "format": "{}"}]}}`,
	},
	{
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "header": "A", "format": "x"}]}}`,
		`format has no place for the value: write {} where it goes`,
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "header": "X", "format": "x {}"}]}}`,
	},
	{
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "header": "a b"}]}}`,
		`' ' is not allowed in the name of a header`,
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "header": "a-b"}]}}`,
	},
	{
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "header": "Proxy-Authorization"}]}}`,
		`the header Proxy-Authorization belongs to the connection, and no credential goes there`,
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "header": "Authorization"}]}}`,
	},
	{
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "header": "Host"}]}}`,
		`the header Host belongs to the connection`,
		`{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "header": "X-Host"}]}}`,
	},
	{`{"extends": []}`, `extends is an empty list; leave the key out, or write "none" to build on nothing`, `{"extends": "none"}`},
	{
		`{"filesystem": {"allowRead": ["/a"` + strings.Repeat(`, "/a"`, maxEntries) + `]}}`,
		`filesystem.allowRead has more than ` + strconv.Itoa(maxEntries) + ` entries`,
		`{"filesystem": {"allowRead": ["/"]}}`,
	},
	{`{"image": "-x"}`, `an image is a reference such as debian:12, or a path such as ./image.tar`, `{"image": "./image.tar"}`},
	{`{"runtime": "nativ"}`, `unknown value; did you mean "native"?`, `{"runtime": "native"}`},
	{
		`{"network": {"exposePorts": ["x:y"]}}`,
		`a port is exposed at an address of this machine, for example 127.0.0.1:8080 or [::1]:8080`,
		`{"network": {"exposePorts": ["127.0.0.1:8080", "[::1]:8080"]}}`,
	},
	{
		`{"network": {"exposePorts": ["70000"]}}`,
		`a port is exposed as PORT, PORT:INSIDE, ADDR:PORT or ADDR:PORT:INSIDE, for example 3000, 8080:80, [::1]:8080:80`,
		`{"network": {"exposePorts": ["3000", "8080:80", "[::1]:8080:80"]}}`,
	},
	{`{"network": {"exposePorts": ["0"]}}`, `the port inside must be named; 0:3000 lets the host choose its own`, `{"network": {"exposePorts": ["0:3000"]}}`},
	{
		`{"resources": {"memory": "5MB"}}`,
		`want a positive number of bytes, or a string such as "512M" or "2GiB"`,
		`{"resources": {"memory": "512M", "disk": "2GiB"}}`,
	},
	{
		`{"resources": {"timeout": "soon"}}`,
		`want a positive number of seconds, or a string such as "10m" or "1h30m"`,
		`{"resources": {"timeout": "1h30m"}}`,
	},
}

func TestWhatAMessageSaysHelps(t *testing.T) {
	for _, c := range fixes {
		if _, err := Parse("p", []byte(c.wrong)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.200s: got %.300v, want %q", c.wrong, err, c.want)
		}
		if _, err := Parse("p", []byte(c.right)); err != nil {
			t.Errorf("%q does not help: %v", c.want, err)
		}
	}
}

// untried are messages that Parse cannot bring about.
var untried = []string{
	"empty variable name", // an empty string is refused before
}

// Every message about a value is tried above.
func TestEveryMessageAboutAValueIsTried(t *testing.T) {
	said := strings.Join(untried, "\n")
	for _, c := range fixes {
		said += "\n" + c.want
	}
	count := 0
	for _, name := range []string{
		"check.go", "conflict.go", "decode.go", "exposure.go", "value.go",
		"notation/name.go", "notation/notation.go", "notation/proxy.go",
	} {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			text, ok := messageOf(n)
			if !ok {
				return true
			}
			if count++; !strings.Contains(said, text) {
				t.Errorf("%v: nothing brings about %q", set.Position(n.Pos()), text)
			}
			return true
		})
	}
	if count < 30 {
		t.Errorf("only %d messages were found", count)
	}
}

// messageOf is the longest written part of an error that is made of a text alone.
func messageOf(n ast.Node) (string, bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return "", false
	}
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || fmt.Sprint(function.X) != "errors" && fmt.Sprint(function.X) != "fmt" || function.Sel.Name != "New" && function.Sel.Name != "Errorf" {
		return "", false
	}
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	longest := ""
	for _, part := range strings.Split(text, "%") {
		if part = strings.TrimSpace(strings.TrimLeft(part, "sqvdwU")); len(part) > len(longest) {
			longest = part
		}
	}
	return longest, err == nil
}
