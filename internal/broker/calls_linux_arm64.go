package broker

var oldCalls map[int32]func(*worker, *notification) answer
