// Package archtest holds the rules about who may import whom, each with its
// reason. Its tests are all there is.
package archtest
