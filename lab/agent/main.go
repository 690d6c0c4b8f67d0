package agent

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Hidden subcommands of the program an agent is part of.
const (
	Subcommand    = "agent"
	InitCommand   = "agent-init"   // becomes the first process of a jail
	WorkerCommand = "agent-worker" // holds a part of an agent's streams
)

// RunAs makes this process an agent, a worker of one, or the first process of a jail, when its
// arguments say so, and then never returns. Every program that starts hosts
// calls it first: the host's agent is the program itself.
func RunAs(args []string) {
	if len(args) < 2 {
		return
	}
	var err error
	switch args[1] {
	case Subcommand:
		err = mainArgs(args[2:])
	case InitCommand:
		err = RunInit()
	case WorkerCommand:
		err = workerMain(context.Background())
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateweigh agent:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Args is the command line that Options stand for, without the program's name.
func (o Options) Args() []string {
	args := []string{Subcommand, "-run", o.Run, "-host", o.Host, "-log-dir", o.LogDir,
		"-agent-cpus", joinInts(o.AgentCPUs), "-program-cpus", joinInts(o.ProgramCPUs)}
	if o.Isolated {
		args = append(args, "-isolated") // testbed.Clean looks for it: such an agent is safe to end
	}
	return args
}

func mainArgs(args []string) error {
	var o Options
	f := flag.NewFlagSet(Subcommand, flag.ContinueOnError)
	f.StringVar(&o.Run, "run", "", "id of the run")
	f.StringVar(&o.Host, "host", "", "name of the host")
	f.StringVar(&o.LogDir, "log-dir", ".", "folder for the output of the host's programs")
	f.Func("agent-cpus", "CPUs of agent, traffic and support programs", parseInts(&o.AgentCPUs))
	f.Func("program-cpus", "CPUs of the host's programs", parseInts(&o.ProgramCPUs))
	f.BoolVar(&o.Isolated, "isolated", false, "started in namespaces of its own")
	if err := f.Parse(args); err != nil {
		return err
	}
	return Main(context.Background(), o)
}

func joinInts(list []int) string {
	text := make([]string, len(list))
	for i, n := range list {
		text[i] = strconv.Itoa(n)
	}
	return strings.Join(text, ",")
}

func parseInts(into *[]int) func(string) error {
	return func(s string) error {
		for _, part := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) {
			n, err := strconv.Atoi(part)
			if err != nil {
				return err
			}
			*into = append(*into, n)
		}
		return nil
	}
}
