package agent

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gateweigh/gateweigh/lab/nic"
	"github.com/gateweigh/gateweigh/lab/result"
)

// readLinks reads the state of interfaces that a lab wants to take, so that they can be put back. It is an error if one
// may not be taken. connection is the value that sshd sets for SSH_CONNECTION.
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

// carriersFor returns the interfaces that may not be taken because they carry the lab's connection, with the reasons.
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

// readLink reads the state of an interface; it is an error if the interface is one of carriers.
func readLink(name string, carriers map[string]string) (nic.State, error) {
	if why, carries := carriers[name]; carries {
		return nic.State{}, fmt.Errorf("%s is %w: %s", name, nic.ErrRefused, why)
	}
	return nic.Read(name)
}

// RefusedLinks returns for each interface the reason why a lab may not take it, or "" if it may. It changes nothing.
func (*machineAgent) RefusedLinks(_ context.Context, links []string, connection string) ([]string, error) {
	carriers, err := carriersFor(connection)
	if err != nil {
		return nil, err
	}
	reasons := make([]string, len(links))
	for i, name := range links {
		// A lab that uses the interface has moved it away. The lock tells that lab's name, where reading would find nothing.
		unlock, err := lockLinks([]string{name}, "examination")
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

// ReadPorts reads the settings of interfaces of the host, in the order of names: see nic.Ports.
func (*Agent) ReadPorts(_ context.Context, names []string) ([]result.Port, error) {
	return nic.Ports(names)
}
