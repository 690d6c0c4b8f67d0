package vm

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gateweigh/gateweigh/lab/kernel"
)

// neededModules are the kernel modules by which the guest reaches the machine's files and the port to this process.
// When it has the files, the kernel loads other modules itself.
var neededModules = []string{"virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"}

// Files of the initrd.
const (
	initFile     = "init"        // this program
	markFile     = "guest"       // says that init is started as one
	moduleFolder = "modules"     // 00-NAME.ko: loaded in this order
	newRoot      = "newroot"     // where the guest's root is put together
	lowerFolder  = "lower"       // the machine's files
	upperFolder  = "upper"       // what the guest changes
	consoleNode  = "dev/console" // output of init goes there
	modeFolder   = 0o040755      // of stat(2)
	modeProgram  = 0o100755      //
	modeFile     = 0o100644      //
	modeNode     = 0o020600      // character device
	consoleMajor = 5             //
	consoleMinor = 1             //
)

// writeInitrd writes the guest's first file system: this program as init, and the modules that it loads.
func writeInitrd(w io.Writer, k kernel.Kernel) error {
	modules, err := k.Load(neededModules...)
	if err != nil {
		return err
	}
	own, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("reading this program for the guest: %w", err)
	}
	if err := static(own); err != nil {
		return err
	}
	a := archive{Writer: bufio.NewWriter(w)}
	for _, folder := range []string{"dev", "proc", "sys", moduleFolder, newRoot, lowerFolder, upperFolder} {
		a.add(entry{name: folder, mode: modeFolder})
	}
	a.add(entry{name: consoleNode, mode: modeNode, major: consoleMajor, minor: consoleMinor})
	a.add(entry{name: markFile, mode: modeFile})
	a.add(entry{name: initFile, mode: modeProgram, data: own})
	for i, m := range modules {
		a.add(entry{name: fmt.Sprintf("%s/%02d-%s.ko", moduleFolder, i, m.Name), mode: modeFile, data: m.Data})
	}
	a.add(entry{name: "TRAILER!!!"})
	return errors.Join(a.err, a.Flush())
}

// static returns ErrStatic for a program that needs a dynamic linker, which the initrd does not have.
func static(program []byte) error {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("reading this program for the guest: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return ErrStatic
		}
	}
	return nil
}

// entry is a file of an archive.
type entry struct {
	name         string
	mode         uint32 // as of stat(2)
	major, minor uint32 // of a device
	data         []byte
}

// archive writes a cpio archive of format "newc" (kernel, Documentation/driver-api/early-userspace/buffer-format.rst).
// Each file has a header of 13 hexadecimal numbers, its name and its content; the latter two are padded to four bytes.
type archive struct {
	*bufio.Writer
	inode uint32
	err   error // the first
}

// add writes a file. It does nothing after an error.
func (a *archive) add(e entry) {
	if a.err != nil {
		return
	}
	a.inode++
	const links, headerSize = 1, 6 + 13*8
	_, a.err = a.WriteString("070701")
	for _, n := range []uint32{
		a.inode, e.mode, 0, 0, links, 0, uint32(len(e.data)), 0, 0, e.major, e.minor, uint32(len(e.name) + 1), 0} {
		fmt.Fprintf(a, "%08X", n)
	}
	io.WriteString(a, e.name+"\x00")
	a.pad(headerSize + len(e.name) + 1)
	if _, err := a.Write(e.data); err != nil && a.err == nil {
		a.err = err
	}
	a.pad(len(e.data))
}

// pad fills up to a multiple of four bytes.
func (a *archive) pad(size int) { a.Write(make([]byte, (4-size%4)%4)) }
