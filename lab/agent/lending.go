package agent

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gateweigh/gateweigh/lab/nic"
	"github.com/gateweigh/gateweigh/lab/result"
)

// readLinks reads what interfaces are, and refuses those that may not be taken. connection is what sshd calls
// SSH_CONNECTION.
func readLinks(links []string, connection string) (states []nic.State, err error) {
	if len(links) == 0 {
		return nil, nil
	}
	carriers, err := carriersFor(connection)
	if err != nil {
		return nil, err
	}
	for _, name := range links {
		s, err := readLink(name, carriers)
		if err != nil {
			return nil, err
		}
		states = append(states, s)
	}
	return states, nil
}

// carriersFor are the interfaces that may not be taken, with the reasons.
func carriersFor(connection string) (map[string]string, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a host needs root: it makes network namespaces and loads programs into the kernel: connect " +
			"as root, or permit sudo without a password")
	}
	if connection == "" {
		return nil, errors.New(
			"sshd names no connection (SSH_CONNECTION is empty), so which interface carries it is not known")
	}
	return nic.Carriers(connection)
}

func readLink(name string, carriers map[string]string) (nic.State, error) {
	if why, carries := carriers[name]; carries {
		return nic.State{}, fmt.Errorf("%s is %w: %s", name, nic.ErrRefused, why)
	}
	return nic.Read(name)
}

// RefusedLinks says of each interface of the agent's network why it may not be taken, empty where it may. It takes none.
func (*machineAgent) RefusedLinks(_ context.Context, links []string, connection string) ([]string, error) {
	carriers, err := carriersFor(connection)
	if err != nil {
		return nil, err
	}
	reasons := make([]string, len(links))
	for i, name := range links {
		unlock, err := lockLinks([]string{name}, "examination") // one that is in use is not there to be read
		if err == nil {
			_, err = readLink(name, carriers)
			unlock()
		}
		if err != nil {
			reasons[i] = err.Error()
		}
	}
	return reasons, nil
}

// ReadPorts reads how interfaces of the host are set, in their order: see nic.Ports.
func (*Agent) ReadPorts(_ context.Context, names []string) ([]result.Port, error) {
	return nic.Ports(names)
}
