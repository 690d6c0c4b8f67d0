package agent

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
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
		var o Options
		if err = o.flags().Parse(args[2:]); err == nil {
			err = Main(context.Background(), o)
		}
	case InitCommand:
		err = runInit()
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
	agentCPUs, _ := json.Marshal(o.AgentCPUs) // numbers can always be written
	programCPUs, _ := json.Marshal(o.ProgramCPUs)
	args := []string{Subcommand, "-run", o.Run, "-host", o.Host, "-log-dir", o.LogDir,
		"-agent-cpus", string(agentCPUs), "-program-cpus", string(programCPUs)}
	if o.Isolated {
		args = append(args, "-isolated") // testbed.Clean looks for it: such an agent is safe to end
	}
	return args
}

func (o *Options) flags() *flag.FlagSet {
	f := flag.NewFlagSet(Subcommand, flag.ContinueOnError)
	list := func(into *[]int) func(string) error {
		return func(text string) error { return json.Unmarshal([]byte(text), into) }
	}
	f.StringVar(&o.Run, "run", "", "id of the run")
	f.StringVar(&o.Host, "host", "", "name of the host")
	f.StringVar(&o.LogDir, "log-dir", ".", "folder for the output of the host's programs")
	f.Func("agent-cpus", "CPUs of agent, traffic and support programs: [0,1]", list(&o.AgentCPUs))
	f.Func("program-cpus", "CPUs of the host's programs: [0,1]", list(&o.ProgramCPUs))
	f.BoolVar(&o.Isolated, "isolated", false, "started in namespaces of its own")
	return f
}
