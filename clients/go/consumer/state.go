package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const saveInterval = time.Second

// stateFile keeps the position on disk. Its methods do nothing on nil: there is no file then.
type stateFile struct {
	path string
	lock *os.File // held until the process ends

	mutex           sync.Mutex
	position, saved string
	failing         bool
}

// openState locks the file against other processes and makes sure that it can be read and replaced. Without a file the
// position is empty.
func openState(path string) (*stateFile, error) {
	s := &stateFile{}
	var err error
	if s.path, err = resolve(path); err != nil {
		return nil, fmt.Errorf("the state file %s cannot be read: %w", path, reason(err))
	}
	if s.lock, err = os.OpenFile(s.path+".lock", os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, fmt.Errorf("the state file %s cannot be written: %w", path, reason(err))
	}
	if err = lock(s.lock); err != nil {
		return nil, fmt.Errorf("the state file %s is used by another process (%w)", path, err)
	}
	raw, err := os.ReadFile(s.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the state file %s cannot be read: %w", path, reason(err))
	}
	s.position = strings.TrimSuffix(string(raw), "\n")
	s.saved = s.position
	if err == nil && !eventID.MatchString(s.position) {
		return nil, fmt.Errorf("the state file %s holds %.40q, which is no position: move it away to begin anew", path, s.position)
	}
	probe, err := s.temporary()
	if err != nil {
		return nil, fmt.Errorf("the state file %s cannot be written: %w", path, reason(err))
	}
	return s, errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// resolve follows links now, so that the file stays the same whatever happens to them. The file may be missing.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Lstat(path); err != nil {
		return path, nil // missing, or told when it is opened
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	return path, err
}

// reason leaves out the path, which the message has already.
func reason(err error) error {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// temporary makes a file beside the state file, of a name that no other process has. os.CreateTemp would hide it from other users.
func (s *stateFile) temporary() (*os.File, error) {
	name := fmt.Sprintf("%s.%d-%08x.new", s.path, os.Getpid(), rand.Uint32())
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
}

func (s *stateFile) set(position string) {
	if s != nil {
		s.mutex.Lock()
		s.position = position
		s.mutex.Unlock()
	}
}

// keepSaving saves now and then for as long as the process lives; trouble is told once until it is over.
func (s *stateFile) keepSaving() {
	for range time.Tick(saveInterval) {
		if err := s.save(); err != nil && !s.failing {
			log.Printf("%v; trying again", err)
			s.failing = true
		} else if err == nil {
			s.failing = false
		}
	}
}

// save replaces the file in one step, so that a crash leaves the old position or the new one.
func (s *stateFile) save() error {
	if s == nil {
		return nil
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.position == s.saved {
		return nil
	}
	file, err := s.temporary()
	if err == nil {
		_, err = file.WriteString(s.position)
		err = errors.Join(err, file.Sync(), file.Close())
		if err == nil {
			err = os.Rename(file.Name(), s.path)
		}
		if err != nil {
			os.Remove(file.Name())
		}
	}
	if err != nil {
		return fmt.Errorf("the position could not be saved: %w", err)
	}
	s.saved = s.position
	return nil
}
