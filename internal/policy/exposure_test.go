package policy

import (
	"strings"
	"testing"
)

func TestExposuresAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"3000":               "127.0.0.1:3000:3000",
		"8080:80":            "127.0.0.1:8080:80",
		"0:3000":             "127.0.0.1:0:3000",
		"0.0.0.0:8080":       "0.0.0.0:8080:8080",
		"192.0.2.1:8080:80":  "192.0.2.1:8080:80",
		"[::1]:8080":         "[::1]:8080:8080",
		"[::]:8080:80":       "[::]:8080:80",
		"127.0.0.1:0:65535":  "127.0.0.1:0:65535",
		"[fd00::1]:1:1":      "[fd00::1]:1:1",
		"127.0.0.1:1234:080": "127.0.0.1:1234:80",
	} {
		got, err := ParseExposure(text)
		if err != nil || got.String() != want {
			t.Errorf("%s: got %v, %v, want %s", text, got, err, want)
		}
		if again, err := ParseExposure(got.String()); err != nil || again != got {
			t.Errorf("%s: read again: %v, %v", got, again, err)
		}
	}
}

func TestExposuresThatMakeNoSenseAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "is exposed as",
		"0":                       "must be named",
		"8080:0":                  "must be named",
		"127.0.0.1:0":             "must be named",
		"65536":                   "is exposed as",
		"8080:65536":              "is exposed as",
		"-1":                      "is exposed as",
		"80-90":                   "is exposed as",
		"8080:80:80":              "is exposed as",
		"localhost:8080":          "at an address of this machine",
		"*:8080":                  "at an address of this machine",
		"::1:8080":                "at an address of this machine",
		"[::1]8080":               "is exposed as",
		"[fe80::1%eth0]:80":       "at an address of this machine",
		"[::ffff:127.0.0.1]:8080": "at an address of this machine",
		"127.0.0.1":               "is exposed as",
		"127.0.0.1:80:80:80":      "is exposed as",
		"8080/udp":                "is exposed as",
	} {
		if got, err := ParseExposure(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
}
