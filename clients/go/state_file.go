package oplog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const saveInterval = time.Second

// stateFile keeps the position on disk. On nil, set, save and close do nothing: the consumer has no state file.
type stateFile struct {
	path     string
	lockFile *os.File // locked until it is closed

	mutex           sync.Mutex
	position, saved string
}

// openStateFile locks the file against other processes, reads it and checks that it can be replaced. The position is
// empty if there is no file.
func openStateFile(path string) (*stateFile, error) {
	s := &stateFile{}
	var err error
	if s.path, err = resolve(path); err != nil {
		return nil, fmt.Errorf("the state file %s cannot be read: %w", path, withoutPath(err))
	}
	if s.lockFile, err = os.OpenFile(s.path+".lock", os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, fmt.Errorf("the state file %s cannot be written: %w", path, withoutPath(err))
	}
	if err = lock(s.lockFile); err != nil {
		err = fmt.Errorf("the state file %s is used by another process (%w)", path, err)
	} else {
		err = s.load(path)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *stateFile) load(shown string) error {
	raw, err := os.ReadFile(s.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the state file %s cannot be read: %w", shown, withoutPath(err))
	}
	s.position = strings.TrimSuffix(string(raw), "\n")
	s.saved = s.position
	if err == nil && !eventID.MatchString(s.position) {
		return fmt.Errorf("the state file %s does not hold a position: %.40q; move it away to start over", shown, s.position)
	}
	probe, err := s.temporary()
	if err != nil {
		return fmt.Errorf("the state file %s cannot be written: %w", shown, withoutPath(err))
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// resolve returns the absolute path without links: later changes of links or of the working directory do not move the file.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Lstat(path); err != nil {
		return path, nil // missing; any other error shows again when the file is opened
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

// withoutPath leaves out the path, which the message already has.
func withoutPath(err error) error {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// temporary creates a file with a unique name beside the state file. os.CreateTemp would hide it from other users.
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

// keepSaving saves at each interval until ctx ends. Consecutive failures are logged once.
func (s *stateFile) keepSaving(ctx context.Context, log func(string)) {
	if s == nil {
		return
	}
	ticker := time.NewTicker(saveInterval)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			err := s.save()
			if err != nil && !failing {
				log(err.Error() + "; trying again")
			}
			failing = err != nil
		}
	}
}

// save replaces the file atomically: a crash leaves the old position or the new one.
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

// close releases the lock.
func (s *stateFile) close() error {
	if s == nil {
		return nil
	}
	return s.lockFile.Close()
}
