package spec

// What Mount.Why says of mounts that no rule of a policy asks for, where a
// runtime has to tell them apart.
const (
	// PrivateHome is the empty directory in the place of the home directory.
	PrivateHome = "private home"
	// WholeMachine is said of files in /proc that tell about every process.
	WholeMachine = "of the whole machine"
)
