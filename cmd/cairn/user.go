package main

import (
	"os"
	"os/user"
)

// userName is who types, for the log: the name of the account.
func userName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	if name := os.Getenv("USER"); name != "" {
		return name
	}
	return "cairn"
}
