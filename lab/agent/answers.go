package agent

import (
	"context"
	"io"
	"maps"
	"reflect"

	"github.com/gateweigh/gateweigh/lab/client"
)

// verbs is what a process answers: the names of requests, each with the method that carries it out. The
// method takes a context and the request's arguments, and returns a result, an error or both. They are listed because a
// method that is looked up by its name makes the Go linker keep every exported method of
// every type in the program: 4 MB of an agent.
type verbs map[string]any

// receiver returns the value that a method of a verb is called on, by that value's type.
type receiver func(reflect.Type) (any, error)

// sameReceiver is the receiver of processes that have one value.
func sameReceiver(v any) receiver { return func(reflect.Type) (any, error) { return v, nil } }

// machineVerbs are what every agent answers.
var machineVerbs = verbs{
	"Hello":        (*machineAgent).Hello,
	"Machine":      (*machineAgent).Machine,
	"Load":         (*machineAgent).Load,
	"Find":         (*machineAgent).Find,
	"Clock":        (*machineAgent).Clock,
	"Busiest":      (*machineAgent).Busiest,
	"RefusedLinks": (*machineAgent).RefusedLinks,
	"RunLoops":     (*machineAgent).RunLoops,
	"ReadAccounts": (*machineAgent).ReadAccounts,
	"Slow":         (*machineAgent).Slow,
	"ReadSlow":     (*machineAgent).ReadSlow,
	"StartPerf":    (*machineAgent).StartPerf,
	"StopPerf":     (*machineAgent).StopPerf,
	"ReadPerf":     (*machineAgent).ReadPerf,
}

// hostVerbs are what the agent of a host answers beside them: for itself, and for the host's clients.
var hostVerbs = verbs{
	"Run":       (*Agent).Run,
	"Spawn":     (*Agent).Spawn,
	"End":       (*Agent).End,
	"Programs":  (*Agent).Programs,
	"Logs":      (*Agent).Logs,
	"WriteFile": (*Agent).WriteFile,
	"Install":   (*Agent).Install,
	"Inside":    (*Agent).Inside,

	"AddPair":       (*Agent).AddPair,
	"Apply":         (*Agent).Apply,
	"AwaitLinks":    (*Agent).AwaitLinks,
	"LinkAddresses": (*Agent).LinkAddresses,
	"ReadPorts":     (*Agent).ReadPorts,
	"AddNeighbours": (*Agent).AddNeighbours,

	"OpenMeter": (*Agent).OpenMeter,
	"Sample":    (*Agent).Sample,
	"PSSMiB":    (*Agent).PSSMiB,
	"Rest":      (*Agent).Rest,
	"LineMbps":  (*Agent).LineMbps,
	"WatchCPUs": (*Agent).WatchCPUs,
	"Away":      (*Agent).Away,

	"ServeTraffic": (*Agent).ServeTraffic,
	"ServeEcho":    (*Agent).ServeEcho,
	"StartTraffic": (*Agent).StartTraffic,
	"TrafficStats": (*Agent).TrafficStats,
	"ShortStats":   (*Agent).ShortStats,
	"MarkTraffic":  (*Agent).MarkTraffic,
	"StopTraffic":  (*Agent).StopTraffic,
	"StartRTT":     (*Agent).StartRTT,
	"TakeRTT":      (*Agent).TakeRTT,
	"PathMTU":      (*Agent).PathMTU,

	"WatchDoor": (*Agent).WatchDoor,
	"Arrivals":  (*Agent).Arrivals,
	"LeaveDoor": (*Agent).LeaveDoor,
	"Knock":     (*Agent).Knock,

	"OpenTap":     (*Agent).OpenTap,
	"TapLengths":  (*Agent).TapLengths,
	"ReadTap":     (*Agent).ReadTap,
	"ServeProbes": (*Agent).ServeProbes,
	"SendProbes":  (*Agent).SendProbes,
	"TakeProbes":  (*Agent).TakeProbes,

	"CreateClients": (*Agent).CreateClients,
	"Addresses":     (*client.Pool).Addresses,
	"Lease":         (*client.Pool).Lease,
	"Login":         (*client.Pool).Login,
	"Status":        (*client.Pool).Status,
	"Logout":        (*client.Pool).Logout,
	"Release":       (*client.Pool).Release,
	"Visit":         (*client.Pool).Visit,
	"Leave":         (*client.Pool).Leave,
}

// workerVerbs are what a process answers that holds a part of an agent's streams.
var workerVerbs = verbs{
	"Serve": (*streams).Serve,
	"Start": (*streams).Start,
	"Stats": (*streams).Stats,
	"Mark":  (*streams).Mark,
	"Stop":  (*streams).Stop,
}

// burnerVerbs are what a process answers that slows CPUs down.
var burnerVerbs = verbs{
	"Burn": (*burner).Burn,
	"Read": (*burner).Read,
}

// answer serves the lab over r and w until r ends: for the machine alone, or for its host too.
func (a *Agent) answer(ctx context.Context, r io.Reader, w io.Writer) error {
	if !a.opts.Isolated {
		return serve(ctx, r, w, machineVerbs, sameReceiver(&a.machineAgent))
	}
	all := maps.Clone(hostVerbs)
	maps.Copy(all, machineVerbs)
	return serve(ctx, r, w, all, a.receiver)
}

func (a *Agent) receiver(typ reflect.Type) (any, error) {
	switch typ {
	case reflect.TypeFor[*machineAgent]():
		return &a.machineAgent, nil
	case reflect.TypeFor[*client.Pool]():
		return a.clients()
	}
	return a, nil
}
