import { Link } from "@tanstack/react-router";
import { Empty } from "@/components/Empty";

export function NotFound() {
  return (
    <Empty title="There is no such page" isPage>
      <p>
        <Link to="/jobs">All jobs</Link>
      </p>
    </Empty>
  );
}
