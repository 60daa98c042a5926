package head

import "strings"

// hops are fields about one connection only.
var hops = map[string]bool{
	"connection": true, "keep-alive": true, "proxy-connection": true, "proxy-authenticate": true,
	"proxy-authorization": true, "te": true, "transfer-encoding": true, "upgrade": true, "http2-settings": true,
	"content-length": true, // written anew with the body
}

// EndToEnd returns the fields that are handed on: not those about this
// connection, nor those that Connection names.
func (f Fields) EndToEnd() Fields {
	named := map[string]bool{}
	for _, value := range f.All("Connection") {
		for word := range strings.SplitSeq(value, ",") {
			named[strings.ToLower(strings.Trim(word, " \t"))] = true
		}
	}
	// Host says where a request goes, and is not the client's to take away.
	delete(named, "host")
	return f.Without(func(name string) bool {
		lower := strings.ToLower(name)
		return hops[lower] || named[lower]
	})
}

// Upgrade is the protocol that a message wants to change to, empty if none. Not
// to HTTP/2 or TLS: behind those, requests would pass that nobody looks at.
func (f Fields) Upgrade() string {
	if !f.Has("Connection", "upgrade") {
		return ""
	}
	value, _ := f.Get("Upgrade")
	lower := strings.ToLower(value)
	if value == "" || strings.Contains(value, ",") || strings.HasPrefix(lower, "h2") || strings.HasPrefix(lower, "tls") || strings.HasPrefix(lower, "http") {
		return ""
	}
	return value
}

// KeepAlive says whether the sender of a message means to keep the connection.
func KeepAlive(minor int, f Fields) bool {
	if f.Has("Connection", "close") {
		return false
	}
	return minor == 1 || f.Has("Connection", "keep-alive")
}
