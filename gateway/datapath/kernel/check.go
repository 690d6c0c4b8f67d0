package kernel

import "golang.org/x/sys/unix"

// hasPPPoE tries the kernel's PPPoE, which loads its modules where it has any.
func hasPPPoE() error {
	fd, err := pppox()
	if err != nil {
		return err
	}
	unix.Close(fd)
	if fd, err = openDevice(); err != nil {
		return err
	}
	unix.Close(fd)
	return nil
}
