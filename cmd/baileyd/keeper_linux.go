package main

import "github.com/bailey-sandbox/bailey/internal/keeper"

func keep() error { return keeper.Serve() }
