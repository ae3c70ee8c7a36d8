/** Jobs that one comparison shows, as many as the service reads at once. */
export const COMPARED_MAX = 200;
