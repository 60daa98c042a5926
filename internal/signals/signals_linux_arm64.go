package signals

func actionOf(handler uintptr) action {
	return action{handler: uint64(handler), flags: onStack | restart, mask: ^uint64(0)}
}
