// Package inside makes connections within the network of a sandbox, from outside
// of it, with the sockets that package mint makes there.
package inside
