<?php
// Addresses of agents.
declare(strict_types=1);

const DEFAULT_PORTS = ['http' => 80, 'https' => 443, 'udp' => 8042];

/** An address with the credentials for it. */
final class Address
{
    private function __construct(
        public readonly string $scheme,
        public readonly string $host, // an IPv6 address in brackets
        public readonly int $port,
        public readonly string $path,
        public readonly string $query,
        private readonly string $user,
        private readonly string $password,
    ) {
    }

    /** Null if it is no URL of one of these schemes. Credentials in the URL come before the password given. */
    public static function parse(string $url, array $schemes, string $password = ''): ?self
    {
        $parts = preg_match('/^[\x21-\x7e]+$/D', $url) ? parse_url($url) : false;
        if ($parts === false || ($parts['host'] ?? '') === '' || ($parts['port'] ?? 1) === 0) {
            return null;
        }
        $scheme = strtolower($parts['scheme'] ?? '');
        if (!in_array($scheme, $schemes, true)) {
            return null;
        }
        $named = isset($parts['user']) || isset($parts['pass']);
        return new self(
            $scheme,
            strtolower($parts['host']),
            $parts['port'] ?? DEFAULT_PORTS[$scheme],
            self::plain_path($parts['path'] ?? '/'),
            $parts['query'] ?? '',
            rawurldecode($parts['user'] ?? ''),
            $named ? rawurldecode($parts['pass'] ?? '') : $password,
        );
    }

    /** Without the segments "." and "..". */
    private static function plain_path(string $path): string
    {
        $segments = [];
        foreach (explode('/', substr($path, 1)) as $segment) {
            if ($segment === '..') {
                array_pop($segments);
            } elseif ($segment !== '.') {
                $segments[] = $segment;
            }
        }
        $is_folder = preg_match('~/\.{0,2}$~D', $path) && end($segments) !== '';
        return '/' . implode('/', $segments) . ($is_folder && $segments !== [] ? '/' : '');
    }

    /** The operations of the agent at this address, with these parameters besides its own. */
    public function ops(string $parameters): self
    {
        $path = rtrim($this->path, '/');
        $path .= str_ends_with($path, '/ops') ? '' : '/ops';
        $query = trim("$this->query&$parameters", '&');
        return new self($this->scheme, $this->host, $this->port, $path, $query, $this->user, $this->password);
    }

    /** The port is left out if it is the scheme's own. */
    public function authority(): string
    {
        return $this->port === DEFAULT_PORTS[$this->scheme] ? $this->host : "$this->host:$this->port";
    }

    public function origin(): string
    {
        return "$this->scheme://{$this->authority()}";
    }

    /** Without credentials and query. */
    public function shown(): string
    {
        return $this->origin() . $this->path;
    }

    public function target(): string
    {
        return $this->path . ($this->query === '' ? '' : "?$this->query");
    }

    /** The target of a redirect from here, null if it is none. */
    public function follow(string $location): ?self
    {
        // As browsers do: a fragment stays here, other bytes than those of a URL are escaped, dots in the path are followed.
        $location = explode('#', $location, 2)[0];
        $location = preg_replace_callback('/[^\x21-\x7e]/', fn (array $byte): string => rawurlencode($byte[0]), $location);
        if ($location === '') {
            return null;
        }
        $location = match (true) {
            preg_match('~^[a-z][a-z0-9+.-]*:~i', $location) === 1 => $location,
            str_starts_with($location, '//') => "$this->scheme:$location",
            str_starts_with($location, '/') => $this->origin() . $location,
            str_starts_with($location, '?') => $this->shown() . $location,
            default => $this->origin() . substr($this->path, 0, (int) strrpos($this->path, '/') + 1) . $location,
        };
        return self::parse($location, ['http', 'https']);
    }

    /** The header with the credentials, but only for a request to the same scheme, host and port. @return string[] */
    public function authorization(self $to): array
    {
        return "$this->user$this->password" === '' || $to->origin() !== $this->origin() ? []
            : ['Authorization: Basic ' . base64_encode("$this->user:$this->password")];
    }
}
