package agent

import "time"

// Command is a program an agent runs on its host. On a namespace host it runs
// inside the host's own network, mount and process namespaces, so whatever it
// leaves behind ends with the host.
type Command struct {
	// Name identifies a spawned process to Kill and in log file names. Unique on the host.
	Name string `json:"name,omitempty"`
	// Argv is the program and its arguments; a program without a slash is looked up on PATH.
	Argv []string `json:"argv"`
	// Env is added to the agent's own environment, "KEY=value" each.
	Env []string `json:"env,omitempty"`
	// Dir is the working directory; empty is the host's scratch directory.
	Dir string `json:"dir,omitempty"`
	// Stdin is given to the program as its standard input.
	Stdin string `json:"stdin,omitempty"`
	// Timeout ends a Run; zero is 30 s. Spawned processes live until killed.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Support marks a process that is not part of the device under test (a
	// RADIUS server, a DHCP server of the clean router): its CPU and memory do
	// not count, and it runs on the endpoints' CPUs.
	Support bool `json:"support,omitempty"`
	// Abrupt makes Kill send SIGKILL at once: for daemons whose polite end takes
	// long and undoes only what ends with the host anyway.
	Abrupt bool `json:"abrupt,omitempty"`
	// Client runs the program in client N's namespace (counts from 1); zero is the host itself.
	Client int `json:"client,omitempty"`
}

// Output is what a finished command printed.
type Output struct {
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	ExitCode int    `json:"exit_code"`
}
