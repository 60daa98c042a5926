package signals

func forwarding() action {
	return action{handler: uint64(handlerAddr()), flags: onStack | restart, mask: ^uint64(0)}
}
