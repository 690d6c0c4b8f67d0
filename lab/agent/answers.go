package agent

import (
	"context"
	"io"
	"maps"
	"reflect"

	"github.com/gateweigh/gateweigh/lab/client"
)

// verbs maps the names of the requests that a process answers to the methods that carry them out. A
// method takes a context and the request's arguments, and returns a result, an error or both. The methods are listed
// here and not looked up by their names (reflect's MethodByName): that would make the Go linker keep every exported
// method of every type, and an agent 4 MB larger.
type verbs map[string]any

// receiver returns the value to call a verb's method on, given the type that the method belongs to.
type receiver func(reflect.Type) (any, error)

// sameReceiver calls all methods on v.
func sameReceiver(v any) receiver { return func(reflect.Type) (any, error) { return v, nil } }

// machineVerbs are the requests that every agent answers.
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

// hostVerbs are the requests that the agent of a host answers too. Those with methods of client.Pool concern all
// clients of the host.
var hostVerbs = verbs{
	"Run":        (*Agent).Run,
	"Spawn":      (*Agent).Spawn,
	"End":        (*Agent).End,
	"Programs":   (*Agent).Programs,
	"Logs":       (*Agent).Logs,
	"WriteFile":  (*Agent).WriteFile,
	"Install":    (*Agent).Install,
	"Namespaces": (*Agent).Namespaces,

	"AddVethPair":   (*Agent).AddVethPair,
	"Apply":         (*Agent).Apply,
	"AwaitLinks":    (*Agent).AwaitLinks,
	"LinkAddresses": (*Agent).LinkAddresses,
	"ReadPorts":     (*Agent).ReadPorts,
	"AddNeighbours": (*Agent).AddNeighbours,

	"OpenMeter":   (*Agent).OpenMeter,
	"Sample":      (*Agent).Sample,
	"StartCourse": (*Agent).StartCourse,
	"TakeCourse":  (*Agent).TakeCourse,
	"PSSMiB":      (*Agent).PSSMiB,
	"Rest":        (*Agent).Rest,
	"LineMbps":    (*Agent).LineMbps,
	"WatchCPUs":   (*Agent).WatchCPUs,
	"Away":        (*Agent).Away,

	"ServeTraffic":  (*Agent).ServeTraffic,
	"ServeEcho":     (*Agent).ServeEcho,
	"StartTraffic":  (*Agent).StartTraffic,
	"TrafficStats":  (*Agent).TrafficStats,
	"ShortStats":    (*Agent).ShortStats,
	"MarkTraffic":   (*Agent).MarkTraffic,
	"StopTraffic":   (*Agent).StopTraffic,
	"ServePulses":   (*Agent).ServePulses,
	"SendPulses":    (*Agent).SendPulses,
	"MarkPulses":    (*Agent).MarkPulses,
	"ReadPulses":    (*Agent).ReadPulses,
	"EndPulses":     (*Agent).EndPulses,
	"Appear":        (*Agent).Appear,
	"SilencePulses": (*Agent).SilencePulses,
	"StartRTT":      (*Agent).StartRTT,
	"TakeRTT":       (*Agent).TakeRTT,
	"RTTCourse":     (*Agent).RTTCourse,
	"PathMTU":       (*Agent).PathMTU,

	"WatchPort":   (*Agent).WatchPort,
	"Arrivals":    (*Agent).Arrivals,
	"UnwatchPort": (*Agent).UnwatchPort,
	"Knock":       (*Agent).Knock,

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
	"Arrive":        (*client.Pool).Arrive,
	"Status":        (*client.Pool).Status,
	"Logout":        (*client.Pool).Logout,
	"Release":       (*client.Pool).Release,
	"Visit":         (*client.Pool).Visit,
	"Leave":         (*client.Pool).Leave,
}

// workerVerbs are the requests of an agent to its worker, a process that holds a part of the agent's streams.
var workerVerbs = verbs{
	"Serve": (*streams).Serve,
	"Start": (*streams).Start,
	"Stats": (*streams).Stats,
	"Mark":  (*streams).Mark,
	"Stop":  (*streams).Stop,
}

// burnerVerbs are the requests of an agent to its burner, a process that slows CPUs down.
var burnerVerbs = verbs{
	"Burn": (*burner).Burn,
	"Read": (*burner).Read,
}

// answer reads the lab's requests from r and writes answers to w until r ends. An agent that runs no host answers
// machineVerbs only.
func (a *Agent) answer(ctx context.Context, r io.Reader, w io.Writer) error {
	if !a.opts.Isolated {
		return serve(ctx, r, w, machineVerbs, sameReceiver(&a.machineAgent))
	}
	all := maps.Clone(hostVerbs)
	maps.Copy(all, machineVerbs)
	return serve(ctx, r, w, all, a.receiver)
}

// receiver is the receiver of hostVerbs and machineVerbs.
func (a *Agent) receiver(typ reflect.Type) (any, error) {
	switch typ {
	case reflect.TypeFor[*machineAgent]():
		return &a.machineAgent, nil
	case reflect.TypeFor[*client.Pool]():
		return a.clients()
	}
	return a, nil
}
