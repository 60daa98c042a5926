// Package conformance holds what every runtime must do, as properties that are
// tried through the bailey command, so that a runtime needs nothing but a name to
// be tried.
//
// A property has probes that must fail, and for each of them a control: the same
// probe, with the same runtime, where it must succeed. A probe that always fails
// shows nothing, and the control catches it. What a probe did is looked for on the
// host, not believed.
//
// A runtime that cannot hold a property must refuse the policy by the key that asks
// for it, with nothing run; that is looked at as well. What a runtime neither holds
// nor refuses must be stated in its documents, and here; see Stated.
//
// A program that runs the suite calls Role first: it is its own probe.
package conformance
