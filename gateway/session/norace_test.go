//go:build !race

package session_test

const raceFactor = 1
