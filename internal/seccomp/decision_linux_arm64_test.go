package seccomp

var (
	archRefusedByName map[string]uint32
	archSamples       []sample
)
