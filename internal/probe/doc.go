// Package probe attacks a sandbox from inside, harmlessly, and says for each
// attack which wall stopped it.
//
// An audit has two halves. The prober is Bailey's own program, started in the
// sandbox like any command: it tries what it is told to try, for real, and
// reports what the kernel answered. The other half stays outside. It knows the
// Spec, opens the sockets and plants the variables that must not be reached,
// and judges: by what it finds on the host afterwards wherever an attack would
// leave a trace there, and only otherwise by the answer the prober got.
//
// Each attack names a control, something of the same kind that must work in the
// same run. Where it does not, nothing was shown, and the audit says so instead
// of counting the attack as stopped.
//
// What a policy grants is no way out. An attack that reaches what the Spec
// grants is reported as that.
package probe
