// The guest's first file system (initrd), which the guest's kernel unpacks into memory.

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

// neededModules are the kernel modules that the guest needs to reach the machine's files and the port to this process.
// Once it has the files, the guest's kernel loads other modules from there.
var neededModules = []string{"virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"}

// Files of the initrd.
const (
	initFile     = "init"        // this program
	markFile     = "guest"       // an empty file by which RunAs knows that it runs in a guest
	moduleFolder = "modules"     // has files 00-NAME.ko, which are loaded in the order of their names
	newRoot      = "newroot"     // where the guest's root is put together
	lowerFolder  = "lower"       // the machine's files
	upperFolder  = "upper"       // what the guest changes
	consoleNode  = "dev/console" // device to which init's output goes
	consoleMajor = 5
	consoleMinor = 1

	modeFolder  = 0o040755 // modes of stat(2)
	modeProgram = 0o100755
	modeFile    = 0o100644
	modeNode    = 0o020600 // character device
)

// writeInitrd writes the guest's first file system: this program as init, and the modules that it loads.
func writeInitrd(w io.Writer, k kernel.Kernel) error {
	modules, err := k.Load(neededModules...)
	if err != nil {
		return err
	}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("reading this program for the guest: %w", err)
	}
	if err := static(program); err != nil {
		return err
	}
	a := archive{Writer: bufio.NewWriter(w)}
	for _, folder := range []string{"dev", "proc", "sys", moduleFolder, newRoot, lowerFolder, upperFolder} {
		a.add(entry{name: folder, mode: modeFolder})
	}
	a.add(entry{name: consoleNode, mode: modeNode, major: consoleMajor, minor: consoleMinor})
	a.add(entry{name: markFile, mode: modeFile})
	a.add(entry{name: initFile, mode: modeProgram, data: program})
	for i, m := range modules {
		a.add(entry{name: fmt.Sprintf("%s/%02d-%s.ko", moduleFolder, i, m.Name), mode: modeFile, data: m.Data})
	}
	a.add(entry{name: "TRAILER!!!"}) // the name that ends a cpio archive
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
	mode         uint32 // as in stat(2)
	major, minor uint32 // numbers of a device
	data         []byte
}

// archive writes a cpio archive of format "newc" (kernel, Documentation/driver-api/early-userspace/buffer-format.rst).
// Each file has a header of 13 hexadecimal numbers, its name and its content; the latter two are padded to four bytes.
type archive struct {
	*bufio.Writer
	inode uint32
	err   error // the first error
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

// pad writes zeros after size bytes, up to a multiple of four.
func (a *archive) pad(size int) { a.Write(make([]byte, (4-size%4)%4)) }
