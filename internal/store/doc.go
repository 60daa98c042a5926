// Package store holds what the server must not forget: who owns what, and in
// which state it is. Every noun of the API is a Record here; what only the noun
// itself understands is in its Data.
//
// The interface is small on purpose. Records change by Commit alone, which
// compares revisions and then changes all or nothing, so that it can be built on
// anything that has compare-and-swap, on one machine or on several. Package
// storetest has the tests that every implementation must pass.
package store
