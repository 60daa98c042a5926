// Package doctest keeps the documents true: links lead somewhere, and shell
// blocks marked as tests run. Its tests are all there is.
//
// A block is marked by the word "test" after its language:
//
//	```sh test
//	bailey -- true
//	```
//
// It runs under bash with -euo pipefail in an empty project directory, with the
// commands of this module first on PATH.
package doctest
