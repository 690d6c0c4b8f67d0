//go:build race

package session_test

// raceFactor is how much more memory and time the race detector needs.
const raceFactor = 10
