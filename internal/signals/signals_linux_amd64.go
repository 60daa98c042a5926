package signals

func actionOf(handler uintptr) action {
	const hasRestorer = 0x04000000
	return action{
		handler: uint64(handler), flags: onStack | restart | hasRestorer, restorer: uint64(restorerAddr()),
		mask: ^uint64(0),
	}
}

// restorerAddr is the address of the code that a handler returns to, which on
// this architecture the program provides.
func restorerAddr() uintptr
